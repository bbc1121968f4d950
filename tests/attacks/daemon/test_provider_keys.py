"""A provider's key reaches the provider and nobody else: no box, no other process, no log, no database, no client.

The key is a canary; the box looks for it with a pattern that is not the canary itself.
"""

import json
import re
import uuid
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.machine_processes import descendants, processes
from support.program_client import bash, local_client, open_conversation, script
from support.programs import Endpoint, Home, Program, World, new_world
from support.secret_service import secret_service

pytestmark = pytest.mark.timeout(120)

RUN = uuid.uuid4().hex[:8]
"""So that neither this file nor another run of it is taken for a find."""
CANARY = f"sk-canary-{RUN}-key"
LOOK_LIMIT_S = 100.0
"""A disk that is busy and has nothing of it at hand gives some hundred megabytes in that."""
LOOK = r"""
pattern='sk-can[a]ry-RUN'
echo "== environment"; env | grep -c "$pattern"
echo "== processes"; decoy=sk-can; DECOY=${decoy}ary-RUN-decoy sleep 5 &
told() { cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -c "$pattern"; }
tries=0; while [ "$(told)" = 0 ] && [ $tries -lt 200 ]; do tries=$((tries + 1)); done; told
echo "== files"; grep -rIls "$pattern" "$HOME" "$MEMORY_DIR" . BASE /etc /run /tmp /var 2>/dev/null
echo "== named"; for path in PATHS; do if [ -e "$path" ]; then echo "seen $path"; fi; done
echo "== end"
"""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("keys") as made:
        yield made


def holders(needle: bytes) -> set[int]:
    """Processes of this machine that have it in their environment or on their command line."""
    found = set()
    for pid, _, seen in processes():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            environment = b""
        if needle in environment or needle.decode() in seen.command:
            found.add(pid)
    return found


def files_with(folder: Path, needle: bytes) -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return [str(path.relative_to(folder)) for path in files if needle in path.read_bytes()]


def home_that_waits(world: World) -> Home:
    """The look goes through whole folders of the machine: its end is awaited, however long a busy one takes."""
    home = world.home("a")
    settings = home.lodger / "config" / "settings.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text("[shell]\nforeground_s = 0\n")
    return home


async def what_a_turn_sees(home: Home, paths: list[Path]) -> tuple[str, list[object]]:
    """What the agent's command finds, and every frame that a client got meanwhile."""
    # What it must find, or its finding nothing else would mean nothing.
    (home.workspace / "decoy.txt").write_text(f"sk-canary-{RUN} is no key")
    # Of /srv what is the test's: the rest of it is nobody's who had the key, and may take longer to read than a turn.
    base = str(home.home.parents[1])
    look = LOOK.replace("PATHS", " ".join(map(str, paths))).replace("RUN", RUN).replace("BASE", base)
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client, cwd=home.workspace)
        asked = "Look. " + script({"calls": [bash(look)]}, {"text": "looked"})
        turn = await conversation.turn(asked, LOOK_LIMIT_S)
        assert turn.text == "looked", turn.results
        for kind in ("list_models", "list_connect_providers", "lodger_status"):
            await client.request({"type": kind, "target": "local"})
        return turn.results[-1], list(client.frames)


def check_the_look(seen: str) -> None:
    sections = dict(re.findall(r"== (\w+)\n(.*?)(?=== )", seen, re.DOTALL))
    assert sections["environment"].strip() == "0", seen
    assert sections["processes"].strip() == "1", seen
    assert {Path(file).name for file in sections["files"].split()} == {"decoy.txt"}, seen
    assert sections["named"].strip() == "", seen


async def check_the_provider_got_it(endpoint: Endpoint) -> None:
    assert {request["headers"].get("authorization") for request in await endpoint.requests()} == {f"Bearer {CANARY}"}


async def connected(world: World, home: Home, endpoint: Endpoint) -> None:
    """As a person does it, the key typed in."""
    ran = await world.run(
        home, "connect", "openai", "--base-url", f"{endpoint.url}/v1", "--api-key-file", "-", stdin=f"{CANARY}\n"
    )
    assert ran.code == 0, ran
    assert CANARY not in ran.out + ran.err


@pytest.mark.parametrize("place", ["keyring", "file"])
async def test_a_key_that_was_connected(world: World, place: str) -> None:
    home, endpoint = home_that_waits(world), await world.endpoint()
    session = world.base / "session"
    with ExitStack() as stack:
        environment: dict[str, str] = {}
        if place == "keyring":
            ring = stack.enter_context(secret_service(session))
            environment = {name: ring[name] for name in ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")}
            environment |= {"PYTHON_KEYRING_BACKEND": "keyring.backends.SecretService.Keyring"}
        daemon = await world.daemon(home, more_environment=environment)
        await connected(world, home, endpoint)
        secrets = home.lodger / "config/secrets"
        seen, frames = await what_a_turn_sees(home, [secrets, session / "bus", session / "run", home.database])
        check_the_look(seen)
        await check_the_provider_got_it(endpoint)
        assert CANARY not in json.dumps(frames)
        assert holders(CANARY.encode()) == set()
        assert await daemon.stop() == 0
        held = files_with(world.base, CANARY.encode())
    assert held == ([] if place == "keyring" else ["a/lodger/config/secrets/openai.key"])


async def test_a_key_of_the_daemons_environment(world: World) -> None:
    home, endpoint = home_that_waits(world), await world.endpoint()
    environment = {"OPENAI_BASE_URL": f"{endpoint.url}/v1", "OPENAI_API_KEY": CANARY}
    daemon = await world.daemon(home, more_environment=environment)
    seen, frames = await what_a_turn_sees(home, [home.database])
    check_the_look(seen)
    await check_the_provider_got_it(endpoint)
    assert CANARY not in json.dumps(frames)
    assert holders(CANARY.encode()) == {daemon.pid, *workers_of(daemon)}
    assert files_with(world.base, CANARY.encode()) == []


def workers_of(daemon: Program) -> list[int]:
    return [seen.pid for seen in descendants(daemon.pid) if "lodger_daemon.models.worker" in seen.command]
