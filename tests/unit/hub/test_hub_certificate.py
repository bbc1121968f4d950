"""The certificate a hub makes itself: kept while it holds, made anew when it does not fit its key."""

import datetime
import ssl
from pathlib import Path

from lodger_hub.lan.certificate import prepare_certificate

NOW = datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC)


def test_a_certificate_that_holds_is_kept(tmp_path: Path) -> None:
    first = prepare_certificate(tmp_path, ("192.168.1.7",), "desk", NOW)
    assert prepare_certificate(tmp_path, ("192.168.1.7",), "desk", NOW + datetime.timedelta(days=300)) == first
    assert prepare_certificate(tmp_path, ("192.168.1.8",), "desk", NOW).fingerprint != first.fingerprint


def test_a_new_key_beside_an_old_certificate_is_no_pair(tmp_path: Path) -> None:
    """As a stop between writing the two leaves them; the server could not start with it, ever again."""
    first = prepare_certificate(tmp_path, ("192.168.1.7",), "desk", NOW)
    other = prepare_certificate(tmp_path / "other", ("192.168.1.7",), "desk", NOW)
    first.key.write_bytes(other.key.read_bytes())
    again = prepare_certificate(tmp_path, ("192.168.1.7",), "desk", NOW)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(again.certificate, again.key)
    assert again.fingerprint != first.fingerprint
