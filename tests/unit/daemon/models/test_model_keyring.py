"""Keys in a real Secret Service, as a person's session has it; and what happens where it is locked."""

import json
import subprocess
import sys
from pathlib import Path

from support.secret_service import secret_service

CANARY = "sk-canary-5b0e"
PROGRAM = """
import json, sys
from pathlib import Path
from lodger_daemon.models.keys import KeyRefused, KeyStore
store, found = KeyStore(Path(sys.argv[1]), {}), []
for order, *rest in json.loads(sys.stdin.read()):
    try:
        value = getattr(store, order)(*rest)
    except KeyRefused as refused:
        value = f"refused: {refused}"
    found.append([value.value, value.source] if hasattr(value, "value") else value)
print(json.dumps(found))
"""


def orders(secrets: Path, environment: dict[str, str], *asked: list[object]) -> list[object]:
    """A key store in a process of its own: the keyring library settles on its backend once for each."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(secrets)],
        env=environment,
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert CANARY not in ran.stderr
    found: list[object] = json.loads(ran.stdout)
    return found


def bytes_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_key_rests_in_the_sessions_keyring_and_nowhere_else(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    with secret_service(tmp_path / "session") as environment:
        assert orders(secrets, environment, ["store", "openai", CANARY]) == ["keyring"]
        assert orders(secrets, environment, ["read", "openai", []]) == [[CANARY, "keyring"]]
        assert CANARY.encode() not in bytes_below(secrets)
        # Another Lodger of the same person has keys of its own.
        assert orders(tmp_path / "other", environment, ["read", "openai", []]) == [None]
        assert orders(secrets, environment, ["store", "openai", f"{CANARY}-2"], ["read", "openai", []]) == [
            "keyring",
            [f"{CANARY}-2", "keyring"],
        ]
        assert orders(secrets, environment, ["forget", "openai"], ["read", "openai", []], ["forget", "openai"]) == [
            True,
            None,
            False,
        ]
    assert CANARY.encode() not in bytes_below(tmp_path)


def test_a_keyring_that_went_away_is_told(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    with secret_service(tmp_path / "session") as environment:
        orders(secrets, environment, ["store", "openai", CANARY])
    (refused,) = orders(secrets, environment, ["read", "openai", []])
    assert str(refused).startswith("refused: The system keyring")


def test_a_locked_keyring_is_not_waited_for(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    with secret_service(tmp_path / "session", unlocked=False) as environment:
        assert orders(secrets, environment, ["store", "openai", CANARY], ["read", "openai", []]) == [
            "file",
            [CANARY, "file"],
        ]
    assert (secrets / "openai.key").stat().st_mode & 0o777 == 0o600
