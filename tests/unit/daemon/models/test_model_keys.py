"""Where keys rest, and who may read them."""

import stat
import threading
from pathlib import Path

import pytest

from lodger_daemon.models import keys as keys_module
from lodger_daemon.models.keys import Key, KeyRefused, KeyStore


class FakeKeyring:
    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, name: str) -> str | None:
        return self.entries.get((service, name))

    def set_password(self, service: str, name: str, value: str) -> None:
        self.entries[service, name] = value

    def delete_password(self, service: str, name: str) -> None:
        del self.entries[service, name]


class LockedKeyring(FakeKeyring):
    def set_password(self, service: str, name: str, value: str) -> None:
        raise RuntimeError("Prompt dismissed")


class HangingKeyring(FakeKeyring):
    def set_password(self, service: str, name: str, value: str) -> None:
        threading.Event().wait(5)


def test_a_working_keyring_is_used_and_nothing_else_holds_the_key(tmp_path: Path) -> None:
    ring = FakeKeyring()
    store = KeyStore(tmp_path / "secrets", {}, lambda: ring)
    assert store.store("openai", "sk-1") == "keyring"
    assert KeyStore(tmp_path / "secrets", {}, lambda: ring).read("openai", ()) == Key("sk-1", "keyring")
    assert b"sk-1" not in b"".join(p.read_bytes() for p in (tmp_path / "secrets").iterdir())
    assert (store.forget("openai"), store.forget("openai")) == (True, False)
    assert ring.entries == {}


@pytest.mark.parametrize("ring", [None, LockedKeyring(), HangingKeyring()])
def test_else_a_private_file(tmp_path: Path, ring: FakeKeyring | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "KEYRING_LIMIT_S", 0.05)
    store = KeyStore(tmp_path / "secrets", {}, lambda: ring)
    assert store.store("openai", "sk-1") == "file"
    file = tmp_path / "secrets" / "openai.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert store.read("openai", ()) == Key("sk-1", "file")
    file.chmod(0o640)
    with pytest.raises(KeyRefused, match="chmod 600"):
        store.read("openai", ())


def test_the_order_of_places(tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    environment = {"CREDENTIALS_DIRECTORY": str(credentials), "OPENAI_API_KEY": "from-env"}
    store = KeyStore(tmp_path / "secrets", environment, lambda: None)
    assert store.read("openai", ("OPENAI_API_KEY",)) == Key("from-env", "environment")
    (credentials / "openai").write_text("from-credential\n")
    assert store.read("openai", ("OPENAI_API_KEY",)) == Key("from-credential", "credential")
    store.store("openai", "stored")
    assert store.read("openai", ("OPENAI_API_KEY",)) == Key("stored", "file")
    assert store.read("anthropic", ()) is None


def test_a_key_never_shows() -> None:
    assert "sk-1" not in f"{Key('sk-1', 'file')!r} {Key('sk-1', 'file')}"


@pytest.mark.parametrize("bad", ["", "two\nlines", "x" * 100_000])
def test_what_is_no_key_is_refused(tmp_path: Path, bad: str) -> None:
    with pytest.raises(KeyRefused):
        KeyStore(tmp_path, {}, lambda: None).store("openai", bad)
