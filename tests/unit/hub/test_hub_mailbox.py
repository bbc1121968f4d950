"""Messages for machines that sleep: posted over HTTP, handed over on the machine's socket."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.websockets import WebSocket

from lodger_hub.mailbox.core.letters import Acknowledgement, Letter, NoLetter, read_acknowledgement, read_letter
from lodger_hub.mailbox.courier import ATTEMPTS, Courier
from lodger_hub.options import RelayLimits
from lodger_hub.relay.outgoing import Outgoing
from lodger_hub.relay.switchboard import MachineLink
from lodger_hub.store.contract import Device, MailDraft, MailLimits, Registration, TokenRole
from lodger_hub.store.sqlite import SqliteHubStore
from support.hub_calls import call, lease_of, letter, paired, running_machine, state_of, until_settled
from support.hub_rig import Hub, receive_json, running_hub, until

PATH = "/v1/machines/device-1/mailbox"


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with running_hub(tmp_path) as hub:
        await lease_of(hub)
        yield hub


def test_only_a_message_with_an_id_can_wait() -> None:
    good = letter("m1")
    expected = {**good, "request_id": "mail-1"}
    assert read_letter(json.dumps(good), "mail-1") == Letter("m1", json.dumps(expected, separators=(",", ":")))
    two = json.loads(json.dumps(good))
    two["payload"]["messages"].append({"role": "user", "content": "x"})
    answered = {**good, "payload": {"kind": "approval_response", "request_id": "q", "decision": {"behavior": "allow"}}}
    for bad in (
        {},
        [],
        {**good, "type": "abort_message"},
        {**good, "runtime": None},
        {**good, "payload": []},
        answered,
        {**good, "payload": {"kind": "create_message", "messages": []}},
        {**good, "payload": {"kind": "create_message", "messages": ["x"]}},
        {**good, "payload": {"kind": "create_message", "messages": [good["payload"]["messages"][0]] * 33}},
        two,
        letter(""),
        letter("x" * 257),
        letter("half a pair \ud800"),
        letter("two\nlines"),
    ):
        assert isinstance(read_letter(json.dumps(bad), "mail-1"), NoLetter), bad
    assert isinstance(read_letter("[" * 100_000, "mail-1"), NoLetter)


def test_acknowledgements_are_told_from_everything_else() -> None:
    frame = {"type": "input_accepted", "request_id": "r", "runtime": {}, "accepted": False, "error": "no"}
    assert read_acknowledgement(json.dumps(frame)) == Acknowledgement("r", False, "no")
    assert read_acknowledgement(json.dumps({**frame, "accepted": "yes", "error": 1})) == Acknowledgement(
        "r", False, None
    )
    for other in (
        '{"type":"x","text":"input_accepted"}',
        "input_accepted",
        json.dumps({**frame, "request_id": 1}),
        "{}",
    ):
        assert read_acknowledgement(other) is None


async def test_a_message_waits_until_the_machine_wakes_and_arrives_once(hub: Hub) -> None:
    _, token = await paired(hub)
    for _ in range(3):
        status, receipt = await call(hub, token, "POST", PATH, json=letter("m1", "Grüße"))
        assert (status, receipt["state"], receipt["connected"]) == (202, "waiting", False)
    await call(hub, token, "POST", PATH, json=letter("m2", "second"))
    async with running_machine(hub) as machine:
        await until_settled(hub, token, [("m1", "delivered", None), ("m2", "delivered", None)])
        assert machine.texts() == ["Grüße", "second"]
        client, frame = machine.frames[0]
        assert frame["request_id"].startswith("mail-")
        assert {**frame, "request_id": "mine-1"} == letter("m1", "Grüße")
        await until(lambda: machine.closed == machine.opened == [client], "the courier has left")
        status, receipt = await call(hub, token, "POST", PATH, json=letter("m1", "Grüße"))
        assert (status, receipt["state"]) == (202, "delivered")
        status, receipt = await call(hub, token, "POST", PATH, json=letter("m3", "third"))
        assert (status, receipt["connected"]) == (202, True)
        await until(lambda: machine.texts() == ["Grüße", "second", "third"], "an awake machine gets it at once")
    async with running_machine(hub) as again:
        await call(hub, token, "POST", PATH, json=letter("m4", "fourth"))
        await until(lambda: again.texts() == ["fourth"], "only what is new")


async def test_it_survives_the_hub(tmp_path: Path) -> None:
    async with running_hub(tmp_path) as hub:
        await lease_of(hub)
        _, token = await paired(hub)
        await call(hub, token, "POST", PATH, json=letter("m1"))
    async with running_hub(tmp_path) as hub, running_machine(hub) as machine:
        await until(lambda: machine.texts() == ["hello"], "delivered by the next hub")
        await until_settled(hub, token, [("m1", "delivered", None)])


async def test_a_machine_that_goes_before_it_answers_gets_it_again(hub: Hub) -> None:
    _, token = await paired(hub)
    await call(hub, token, "POST", PATH, json=letter("m1"))
    async with running_machine(hub, answer=None) as silent:
        await until(lambda: silent.texts() == ["hello"], "handed over")
    assert await state_of(hub, token) == [("m1", "waiting", None)]
    async with running_machine(hub) as machine:
        await until_settled(hub, token, [("m1", "delivered", None)])
        assert machine.texts() == ["hello"]


async def test_a_refusal_is_shown_to_its_sender_only(hub: Hub) -> None:
    _, token = await paired(hub)
    _, other = await paired(hub, "tablet")
    await call(hub, token, "POST", PATH, json=letter("m1"))
    async with running_machine(hub, answer={"accepted": False, "error": "Agent agent-1 not found"}):
        await until_settled(hub, token, [("m1", "refused", "Agent agent-1 not found")])
    assert await state_of(hub, other) == []


async def test_halves_of_characters_from_either_side_do_no_harm(hub: Hub) -> None:
    _, token = await paired(hub)
    await call(hub, token, "POST", PATH, content=json.dumps(letter("m1", "half \udc00")))
    async with running_machine(hub, answer={"accepted": False, "error": "no \ud83d"}) as machine:
        await until_settled(hub, token, [("m1", "refused", "no ?")])
        assert machine.texts() == ["half \udc00"]
        assert (await call(hub, token, "POST", PATH, content=json.dumps(letter("\ud800"))))[0] == 400


async def test_what_waits_can_be_taken_back_by_its_sender(hub: Hub) -> None:
    _, token = await paired(hub)
    _, other = await paired(hub, "tablet")
    await call(hub, token, "POST", PATH, json=letter("m1"))
    assert (await call(hub, other, "DELETE", f"{PATH}/m1"))[0] == 404
    assert await call(hub, token, "DELETE", f"{PATH}/m1") == (200, {"taken_back": True})
    assert (await call(hub, token, "DELETE", f"{PATH}/m1"))[0] == 404
    async with running_machine(hub) as machine:
        await call(hub, token, "POST", PATH, json=letter("m2", "later"))
        await until(lambda: machine.texts() == ["later"], "the one taken back was never sent")


async def test_a_full_mailbox_refuses_with_words(tmp_path: Path) -> None:
    async with running_hub(tmp_path, mail=MailLimits(per_machine=1)) as hub:
        await lease_of(hub)
        _, token = await paired(hub)
        await call(hub, token, "POST", PATH, json=letter("m1"))
        status, refused = await call(hub, token, "POST", PATH, json=letter("m2"))
        assert (status, refused["errorCode"]) == (409, "mailbox_full")
        assert "wake it" in refused["message"]


async def test_bad_letters_and_unknown_machines_are_refused(hub: Hub) -> None:
    token = hub.token("client")
    assert (await call(hub, token, "POST", PATH, json={"type": "input"}))[0] == 400
    assert (await call(hub, token, "POST", PATH, content=b" " * (8 * 1024 * 1024 + 1)))[0] == 413
    for method in ("POST", "GET"):
        status, answer = await call(hub, token, method, "/v1/machines/nobody/mailbox", json=letter("m1"))
        assert (status, answer["errorCode"]) == (404, "unknown_machine")


async def test_a_stock_machine_gets_its_mail_in_bare_frames(hub: Hub) -> None:
    _, token = await paired(hub)
    await call(hub, token, "POST", PATH, json=letter("m1"))
    async with hub.machine(await lease_of(hub, enveloped=False)) as machine:
        frame = await receive_json(machine)
        assert frame["payload"] == letter("m1")["payload"]
        accepted: dict[str, Any] = {"type": "input_accepted", "request_id": frame["request_id"], "accepted": True}
        await machine.send(json.dumps({"type": "update_queue", "runtime": frame["runtime"]}))
        await machine.send(json.dumps({**accepted, "runtime": frame["runtime"]}))
        await until_settled(hub, token, [("m1", "delivered", None)])


async def test_a_machine_that_never_answers_does_not_hold_up_other_conversations(tmp_path: Path) -> None:
    async with running_hub(tmp_path, limits=RelayLimits(acknowledge_s=0.3, mail_again_s=0.1)) as hub:
        await lease_of(hub)
        _, token = await paired(hub)
        for message_id, conversation in (("m1", "conv-1"), ("m2", "conv-1"), ("m3", "conv-2")):
            await call(hub, token, "POST", PATH, json=letter(message_id, message_id, conversation_id=conversation))
        async with running_machine(hub, answer=None, pings=True) as machine:
            # In one conversation nothing overtakes; each is tried as often as documented, then given up with words.
            silence = "the machine did not acknowledge it, however often it was sent"
            wanted = [(message_id, "refused", silence) for message_id in ("m1", "m2", "m3")]
            await until_settled(hub, token, wanted)
            assert machine.texts()[:2] == ["m1", "m3"]
            assert sorted(machine.texts()) == sorted(["m1", "m2", "m3"] * ATTEMPTS)
            assert machine.texts().index("m2") > 2


async def test_a_machine_asleep_behind_an_open_socket_refuses_nothing(tmp_path: Path) -> None:
    """A laptop's lid is closed: its connection stands, and nobody is there. That is no word about the message."""
    async with running_hub(tmp_path, limits=RelayLimits(acknowledge_s=0.05, mail_again_s=0.05)) as hub:
        await lease_of(hub)
        _, token = await paired(hub)
        await call(hub, token, "POST", PATH, json=letter("m1"))
        async with running_machine(hub, answer=None) as asleep:
            await until(lambda: len(asleep.texts()) > ATTEMPTS + 2, "tried again and again")
            assert await state_of(hub, token) == [("m1", "waiting", None)]
        async with running_machine(hub):
            await until_settled(hub, token, [("m1", "delivered", None)])


async def test_what_was_read_before_a_revocation_is_not_sent_after_it(tmp_path: Path) -> None:
    store = await SqliteHubStore.open(tmp_path / "hub.db")
    machine = await store.register(Registration("device-1", "laptop", None, {"relay_envelope": True}, "env-1"), 1)
    await store.add_device(Device("phone", "phone", TokenRole.CLIENT, 1, None))
    await store.post_mail(MailDraft("device-1", "phone", "m1", "mail-1", json.dumps(letter("m1")), 1), MailLimits())
    link = MachineLink(cast("WebSocket", None), RelayLimits(), machine, "token-1", lambda: 0.001)
    serving = asyncio.create_task(Courier(store, lambda _: False, wall=lambda: 0.002).serve(link))
    sent: list[str] = []

    async def send(frame: str) -> None:
        sent.append(frame)

    draining = asyncio.create_task(link.out.drain(send, 1.0))
    await until(lambda: len(sent) == 2, "the courier came and went")
    for task in (serving, draining):
        task.cancel()
    await asyncio.gather(serving, draining, return_exceptions=True)
    assert not any("hello" in frame for frame in sent)
    await store.aclose()


async def test_a_queue_takes_nothing_from_a_sender_who_was_cut_while_waiting() -> None:
    queue = Outgoing(limit_frames=1, limit_bytes=100)
    wanted = True
    await queue.put("first", "a", lambda: wanted)
    waiting = asyncio.create_task(queue.put("second", "a", lambda: wanted))
    other = asyncio.create_task(queue.put("third", "b", lambda: True))
    await asyncio.sleep(0)
    wanted = False
    queue.drop("a")
    sent: list[str] = []

    async def send(frame: str) -> None:
        sent.append(frame)

    draining = asyncio.create_task(queue.drain(send, 1.0))
    await asyncio.gather(waiting, other)
    await until(lambda: sent == ["third"], "only what is wanted")
    draining.cancel()
    await asyncio.gather(draining, return_exceptions=True)
