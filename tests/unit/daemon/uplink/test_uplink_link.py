"""The uplink against a real hub over real sockets."""

import asyncio
import contextlib
import dataclasses
import json
import subprocess
from pathlib import Path

import pytest

from lodger_daemon.uplink.core.status import UplinkState
from lodger_daemon.uplink.errors import InsecureHubUrl
from lodger_daemon.uplink.timing import UplinkTiming
from support.hub_rig import QUICK, JumpingClock, Proxy, Rig, receive_json, running_hub, running_uplink, until
from support.patience import LIMIT_S


async def connected(rig: Rig) -> None:
    await until(lambda: rig.uplink.status().state is UplinkState.CONNECTED, f"connected; {rig.uplink.status()}")


async def test_a_thousand_frames_come_in_order_for_each_of_three_clients(tmp_path: Path) -> None:
    async with running_hub(tmp_path) as hub, running_uplink(hub.url, hub.token("machine")) as rig:
        await connected(rig)

        async def talk(name: str) -> list[int]:
            async with hub.client("device-1") as socket:
                for number in range(1000):
                    await socket.send(json.dumps({"type": "x", "who": name, "n": number}))
                frames = [await receive_json(socket) for _ in range(1000)]
                assert {frame["who"] for frame in frames} == {name}
                return [frame["n"] for frame in frames]

        results = await asyncio.gather(*(talk(name) for name in "abc"))
        assert results == [list(range(1000))] * 3
        await until(lambda: all(peer.closed for peer in rig.router.peers), "peers closed")
        assert len(rig.router.peers) == 3


async def test_a_restarted_hub_is_found_again_over_the_same_lease(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as uplinks:
        async with running_hub(tmp_path) as hub:
            port = int(hub.url.rpartition(":")[2])
            rig = await uplinks.enter_async_context(running_uplink(hub.url, hub.token("machine")))
            await connected(rig)
            lease = rig.uplink.status().connection_id
        await until(lambda: rig.uplink.status().state is not UplinkState.CONNECTED, "the loss was noticed")
        async with running_hub(tmp_path, port):
            await connected(rig)
            assert rig.uplink.status().connection_id == lease


async def test_a_hub_that_forgot_the_lease_is_registered_with_again(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as uplinks:
        async with running_hub(tmp_path) as hub:
            port = int(hub.url.rpartition(":")[2])
            rig = await uplinks.enter_async_context(running_uplink(hub.url, hub.token("machine")))
            await connected(rig)
            lease = rig.uplink.status().connection_id
        for file in tmp_path.glob("hub.db*"):
            file.unlink()
        async with running_hub(tmp_path, port):
            await until(lambda: rig.uplink.status().connection_id not in (None, lease), "a new lease")
            await connected(rig)


async def test_a_swallowing_path_is_given_up_and_dialled_anew(tmp_path: Path) -> None:
    async with (
        running_hub(tmp_path) as hub,
        Proxy(int(hub.url.rpartition(":")[2])) as proxy,
        running_uplink(f"http://127.0.0.1:{proxy.port}", hub.token("machine")) as rig,
    ):
        await connected(rig)
        before = proxy.connections
        proxy.swallow()
        await until(lambda: proxy.connections > before, "a new connection")
        await connected(rig)
        async with hub.client("device-1") as socket:
            await socket.send('{"type":"x"}')
            assert await receive_json(socket) == {"type": "x", "answer": 0}


# Only a wake makes this uplink ask or try within the time of a test.
PATIENT = UplinkTiming(probe_interval_s=1000.0, wake_check_s=0.02, wake_probe_interval_s=0.1, time_scale=1000.0)


async def test_r7_a_wake_is_followed_by_a_probe_of_a_healthy_link(tmp_path: Path) -> None:
    clock = JumpingClock()
    async with (
        running_hub(tmp_path) as hub,
        running_uplink(hub.url, hub.token("machine"), timing=PATIENT, clock=clock) as rig,
    ):
        await connected(rig)
        since = rig.uplink.status().since
        clock.ahead_s = 8 * 3600
        await until(lambda: (rig.uplink.status().last_contact_at or 0) > since + 8 * 3600 - 1, "the probe's answer")
        await asyncio.sleep(0.4)
        assert (rig.uplink.status().state, rig.uplink.status().since) == (UplinkState.CONNECTED, since)


async def test_r7_a_link_that_died_in_the_sleep_is_dialled_anew_at_once(tmp_path: Path) -> None:
    clock = JumpingClock()
    async with (
        running_hub(tmp_path) as hub,
        Proxy(int(hub.url.rpartition(":")[2])) as proxy,
        running_uplink(f"http://127.0.0.1:{proxy.port}", hub.token("machine"), timing=PATIENT, clock=clock) as rig,
    ):
        await connected(rig)
        proxy.swallow()
        clock.ahead_s = 8 * 3600
        await until(lambda: rig.uplink.status().state is UplinkState.WAITING, "the dead link was given up")
        # The wait that follows is as long as any; a wake ends it.
        clock.ahead_s *= 2
        await connected(rig)


async def test_a_second_process_takes_the_place_and_the_first_stops_dialling(tmp_path: Path) -> None:
    async with running_hub(tmp_path) as hub, running_uplink(hub.url, hub.token("machine")) as first:
        await connected(first)
        async with running_uplink(hub.url, hub.token("machine")) as second:
            await connected(second)
            await until(lambda: first.uplink.status().state is UplinkState.SUPERSEDED, "superseded")
            assert "another process is connected to the hub as this machine" in (first.uplink.status().reason or "")
            await asyncio.sleep(0.3)
            assert first.uplink.status().state is UplinkState.SUPERSEDED
            assert second.uplink.status().state is UplinkState.CONNECTED
        first.uplink.resume()
        await connected(first)


async def test_a_superseded_uplink_takes_its_place_again_when_the_other_is_gone(tmp_path: Path) -> None:
    looking = dataclasses.replace(QUICK, place_look_s=0.1)
    async with running_hub(tmp_path) as hub, running_uplink(hub.url, hub.token("machine"), timing=looking) as first:
        await connected(first)
        async with running_uplink(hub.url, hub.token("machine"), timing=looking) as second:
            await connected(second)
            await until(lambda: first.uplink.status().state is UplinkState.SUPERSEDED, "superseded")
            since = second.uplink.status().since
            await asyncio.sleep(1.0)
            assert first.uplink.status().state is UplinkState.SUPERSEDED
            assert first.uplink.status().next_attempt_at is not None
            assert (second.uplink.status().state, second.uplink.status().since) == (UplinkState.CONNECTED, since)
        await connected(first)


@pytest.mark.parametrize("kind", ["boom", "cut_me"])
async def test_a_client_that_is_given_up_is_closed_and_others_go_on(tmp_path: Path, kind: str) -> None:
    async with running_hub(tmp_path) as hub, running_uplink(hub.url, hub.token("machine")) as rig:
        await connected(rig)
        async with hub.client("device-1") as good, hub.client("device-1") as bad:
            await bad.send(f'{{"type":"{kind}"}}')
            await asyncio.wait_for(bad.wait_closed(), LIMIT_S)
            assert bad.close_code == 1011
            await good.send('{"type":"x"}')
            assert (await receive_json(good))["type"] == "x"
            assert {peer.wire_name for peer in rig.router.peers} == {rig.uplink.status().connection_id}


async def test_a_moved_head_reaches_the_callback(tmp_path: Path) -> None:
    from lodger_hub.relay.switchboard import Switchboard

    boards: list[Switchboard] = []
    original = Switchboard.__init__

    def remember(self: Switchboard, *args: object, **named: object) -> None:
        original(self, *args, **named)  # type: ignore[arg-type]
        boards.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Switchboard, "__init__", remember)
        async with running_hub(tmp_path) as hub, running_uplink(hub.url, hub.token("machine")) as rig:
            await connected(rig)
            # The daemon may know of the connection some turns of the loop before the hub tells anybody over it.
            await until(lambda: boards[0].tell_of_mail("device-1"), "the hub knows of the machine")
            boards[0].announce_head("agent-1", "abc")
            await until(lambda: rig.heads == [("agent-1", "abc")], "the head was told")


async def test_tls_with_an_authority_of_its_own(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    await asyncio.to_thread(subprocess.run, words, check=True, capture_output=True)
    async with running_hub(tmp_path / "hub", tls=(certificate, key)) as hub:
        assert hub.url.startswith("https://")
        async with (
            running_uplink(hub.url, hub.token("machine"), ca_file=certificate) as trusting,
            running_uplink(hub.url, hub.token("machine"), device_id="device-2") as strange,
        ):
            await connected(trusting)
            await until(lambda: strange.uplink.status().failures > 0, "a failed try")
            assert "certificate" in (strange.uplink.status().reason or "")


async def test_status_says_when_and_why(tmp_path: Path) -> None:
    async with running_hub(tmp_path) as hub, running_uplink(hub.url, "wrong-token") as rig:
        await until(lambda: rig.uplink.status().state is UplinkState.WAITING, "waiting")
        status = rig.uplink.status()
        assert status.reason == "the hub answered 401: the token is not valid here"
        assert status.next_attempt_at is not None
        assert status.next_attempt_at > status.since
        assert status.failures >= 1
    assert rig.uplink.status().state is UplinkState.STOPPED


@pytest.mark.parametrize("url", ["http://hub.example", "ftp://localhost", "https://", "http://127.0.0.1:99999", "x"])
def test_an_address_that_would_send_the_token_in_the_clear_is_refused(url: str) -> None:
    from lodger_daemon.uplink.registration import check_hub_url

    with pytest.raises(InsecureHubUrl):
        check_hub_url(url)


def test_defaults_keep_what_is_promised() -> None:
    timing = UplinkTiming()
    assert (1 + 3) * timing.probe_interval_s <= 90
    assert timing.wake_check_s + 2 * timing.wake_probe_interval_s <= 5.0
    assert QUICK.send_limit_s == timing.send_limit_s


async def test_a_clock_that_is_wrong_shows_beside_that_of_the_hub(tmp_path: Path) -> None:
    clock = JumpingClock()
    clock.ahead_s = 7200.0
    async with running_hub(tmp_path) as hub, running_uplink(hub.url, hub.token("machine"), clock=clock) as rig:
        await connected(rig)
        seen = rig.uplink.status().hub_clock
    assert seen is not None
    assert 7195 < seen.ahead_s < 7215
    assert abs(seen.at - clock.wall()) < 20
