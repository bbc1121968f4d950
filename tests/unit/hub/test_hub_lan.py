"""The certificate a hub makes itself, and the second listener that uses it."""

import datetime
import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from lodger_daemon.uplink.core.status import UplinkState
from lodger_hub.errors import BadAddress, CertificateFailed
from lodger_hub.lan.certificate import fingerprint_of, prepare_certificate
from lodger_hub.options import HubOptions, LanListener
from lodger_hub.reach import ReachKind
from lodger_hub.server import serve
from support.hub_calls import call, http_of, paired
from support.hub_rig import running_hub, running_uplink, until

NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)


def test_it_is_made_once_and_kept_private(tmp_path: Path) -> None:
    made = prepare_certificate(tmp_path / "tls", ["192.168.1.5"], "den.local", NOW)
    assert prepare_certificate(tmp_path / "tls", ["192.168.1.5"], "den.local", NOW) == made
    assert made.key.stat().st_mode & 0o777 == 0o600
    assert made.key.parent.stat().st_mode & 0o777 == 0o700
    certificate = x509.load_pem_x509_certificate(made.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["den.local", "localhost"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["192.168.1.5", "127.0.0.1", "::1"]
    der = ssl.PEM_cert_to_DER_cert(made.certificate.read_text())
    assert made.fingerprint == fingerprint_of(der)
    assert len(made.fingerprint) == 95
    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False


@pytest.mark.parametrize("change", ["address", "age", "torn", "no key"])
def test_it_is_made_anew_when_it_no_longer_holds(tmp_path: Path, change: str) -> None:
    made = prepare_certificate(tmp_path, ["192.168.1.5"], "den", NOW)
    addresses, now = ["192.168.1.5"], NOW
    match change:
        case "address":
            addresses = ["192.168.1.6"]
        case "age":
            now += datetime.timedelta(days=370)
        case "torn":
            made.certificate.write_text("-----BEGIN")
        case _:
            made.key.unlink()
    assert prepare_certificate(tmp_path, addresses, "den", now).fingerprint != made.fingerprint


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "tls").write_text("a file")
    with pytest.raises(CertificateFailed, match="tls"):
        prepare_certificate(tmp_path / "tls", [], "den", NOW)


async def test_the_lan_speaks_tls_and_the_machine_itself_does_not(tmp_path: Path) -> None:
    async with running_hub(tmp_path, lan=LanListener("127.0.0.1", 0)) as hub:
        lan, own = hub.reach.places
        assert (lan.kind, own.kind, own.url) == (ReachKind.LAN, ReachKind.MACHINE, hub.url)
        assert lan.url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(tmp_path / "tls" / "lan.pem"))
        async with http_of(hub, hub.token("client"), verify=trusted) as http:
            assert (await http.get(f"{lan.url}/v1/devices")).status_code == 200
            own_page = {"Origin": lan.url}
            assert (await http.get(f"{lan.url}/v1/devices", headers=own_page)).status_code == 200
            plain_page = {"Origin": lan.url.replace("https", "http")}
            assert (await http.get(f"{lan.url}/v1/devices", headers=plain_page)).status_code == 403
        async with running_uplink(lan.url, hub.token("machine"), ca_file=tmp_path / "tls" / "lan.pem") as rig:
            await until(lambda: rig.uplink.status().state is UplinkState.CONNECTED, "connected over the LAN")
        status, made = await call(hub, hub.token("client"), "POST", "/v1/pairings")
        assert (status, made["fingerprint"]) == (201, hub.reach.fingerprint)
        assert [link["url"] for link in made["links"]] == [
            f"{lan.url}/#pair={made['code']}",
            f"{hub.url}/#pair={made['code']}",
        ]


async def test_behind_a_proxy_the_public_address_is_the_hubs_own(tmp_path: Path) -> None:
    async with running_hub(tmp_path, public_url="https://hub.example") as hub:
        seen = {"Host": "hub.example", "Origin": "https://hub.example"}
        async with http_of(hub, hub.token("machine")) as http:
            assert (await http.get("/v1/environments", headers=seen)).status_code == 200
            plain = {**seen, "Origin": "http://hub.example"}
            assert (await http.get("/v1/environments", headers=plain)).status_code == 403
            body = {"deviceId": "d", "connectionName": "n", "metadata": {}}
            lease = (await http.post("/v1/environments/register", headers=seen, json=body)).json()
            assert lease["wsUrl"].startswith("wss://hub.example/v1/environments/ws?")
        status, made = await call(hub, hub.token("client"), "POST", "/v1/pairings")
        assert (status, made["links"][0]["url"]) == (201, f"https://hub.example/#pair={made['code']}")
        assert (await paired(hub))[0]


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BadAddress, match=f"port {port} on 127.0.0.1 .*--lan-port"):
            await serve(HubOptions(tmp_path, port=0, lan=LanListener("127.0.0.1", port)))


async def test_half_a_certificate_and_a_wrong_address_are_refused(tmp_path: Path) -> None:
    for options in (
        HubOptions(tmp_path, tls_certificate=tmp_path / "c"),
        HubOptions(tmp_path, lan=LanListener(key=tmp_path / "k")),
        HubOptions(tmp_path, public_url="http://hub.example"),
    ):
        with pytest.raises(BadAddress):
            await serve(options)
