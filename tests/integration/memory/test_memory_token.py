"""A person's own git host in Letta's address form, by settings and `lodger memory token`: memory goes there, and the
tokens stand nowhere but where they were stored. Real programs, stock `git http-backend`."""

import asyncio
import base64
import os
import pty
import select
import stat
import subprocess
from pathlib import Path

import pytest

from support.foreign_git_host import make_repository, running_foreign_host, telling_everything
from support.git_host_server import TOKEN
from support.machine_processes import processes
from support.patience import LIMIT_S
from support.persons_git import git
from support.program_client import Client, Frame, bash, local_client, open_conversation, remember, script
from support.programs import LODGER, Home, World, new_world

pytestmark = pytest.mark.timeout(240)

CANARY = "canary-58c1-of-a-mirror"
SECRETS = tuple(
    form.encode() for token in (TOKEN, CANARY) for form in (token, base64.b64encode(f"letta:{token}".encode()).decode())
)


def without_secrets(said: str | bytes) -> bool:
    told = said.encode() if isinstance(said, str) else said
    return not any(secret in told for secret in SECRETS)


def files_with_secrets(base: Path, stored: set[Path]) -> list[Path]:
    files = [path for path in base.rglob("*") if path.is_file() and not path.is_symlink() and path not in stored]
    return [path for path in files if not without_secrets(path.read_bytes())]


def store(world: World, home: Home, host: str, token: str) -> str:
    """As at a terminal: asked for, typed; everything that was shown."""
    ours, theirs = pty.openpty()
    words = ("setsid", "--ctty", *LODGER, "memory", "token", host)
    program = subprocess.Popen(words, env=world.environment(home), stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown, typed = b"", False
    try:
        while piece := _read(ours):
            shown += piece
            if not typed and b"Token of the" in shown:
                os.write(ours, token.encode() + b"\n")
                typed = True
        assert program.wait(LIMIT_S) == 0, shown
    finally:
        program.kill()
        program.wait()
        os.close(ours)
    return shown.decode()


def _read(terminal: int) -> bytes:
    """Empty when nobody has the other side any more, or nothing comes."""
    if not select.select([terminal], [], [], LIMIT_S)[0]:
        return b""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""


async def test_memory_goes_to_the_persons_own_host_and_its_token_nowhere_else() -> None:
    async with new_world("token") as world:
        root = world.base / "host"
        with running_foreign_host(root, "agent-somebody") as host, telling_everything() as (telling, asked, go_on):
            home = world.home("one")
            letta = "/v1/git/{agent}/state.git"
            (home.lodger / "config").mkdir(mode=0o700)
            (home.lodger / "config" / "settings.toml").write_text(
                f'[memory]\nremote = "{host.replace("//", "//letta@")}{letta}"\n'
                f'mirror = "{telling.replace("//", "//letta@")}{letta}"\n'
            )
            told = [await asyncio.to_thread(store, world, home, "remote", TOKEN)]
            stored = await world.run(home, "memory", "token", "mirror", "--token-file", "-", "--json", stdin=CANARY)
            assert "The token of the remote is stored (file)." in told[0]
            assert stored.ok().json == {"host": "mirror", "source": "file"}
            secrets = home.lodger / "config" / "secrets"
            kept = {secrets / "memory-remote.key", secrets / "memory-mirror.key"}
            assert [stat.S_IMODE(path.stat().st_mode) for path in (secrets, *sorted(kept))] == [0o700, 0o600, 0o600]
            told += [stored.out, stored.err]

            endpoint = await world.endpoint()
            log = ("--log-file", str(home.state / "daemon.log"))
            daemon = await world.daemon(home, *log, endpoint=endpoint)
            async with local_client(home.socket) as client:
                conversation = await open_conversation(client, cwd=home.workspace)
                agent = str(conversation.runtime["agent_id"])
                repository = make_repository(root, agent)
                look = bash("tr '\\0' '\\n' </proc/self/environ; cat /proc/[0-9]*/cmdline; cat ~/.git* 2>/dev/null; :")
                calls = [remember("harbour", "Ingrid rules it."), look]
                turn = await conversation.turn(script({"calls": calls}))
                assert await asyncio.to_thread(asked.wait, 40)
                lines = [seen.command for _, _, seen in processes()]
                assert any("git-remote-http" in line for line in lines)
                told += [*lines, *turn.results]
                go_on.set()
                facts = await refused(client, agent)
                assert facts["sync"]["outcome"] in {"pushed", "clean"}
                assert "403" in facts["mirror"]["fault"]
                told.append(str(facts))
                assert git(f"--git-dir={repository}", "show", "main:harbour.md").endswith("Ingrid rules it.\n")
                assert "Ingrid" in git(f"--git-dir={repository}", "log", "-p", "--format=%an %ae")
                # The agent hears of what is wrong with its memory, and so does its model.
                await conversation.turn(script({"say": "fine"}))
            for words in (("memory", "status"), ("doctor", "--json"), ("logs",)):
                ran = await world.run(home, *words)
                told += [ran.out, ran.err]
                assert words[0] != "doctor" or "memory-unmirrored" in ran.out
            told += [str(request) for request in await endpoint.requests()]
            await daemon.stop()
            assert [text[:200] for text in told if not without_secrets(text)] == []
            assert files_with_secrets(world.base, kept) == []

            assert (await world.run(home, "memory", "token", "remote", "--remove", "--json")).ok().json == {
                "host": "remote",
                "source": "none",
            }
            assert not (secrets / "memory-remote.key").exists()


async def refused(client: Client, agent: str) -> Frame:
    """How sync and mirror stand once the mirror has answered."""
    request = {"type": "lodger_memory_state", "agent_id": agent, "limit_s": 20}
    async with asyncio.timeout(LIMIT_S):
        while not (answer := await client.request(request))["mirror"]["fault"]:  # noqa: ASYNC110 - asked over the wire
            await asyncio.sleep(0.05)
    return answer


async def test_a_token_is_taken_from_no_argument() -> None:
    """Other users of the machine could read it there."""
    async with new_world("token-argument") as world:
        home = world.home("one")
        assert (await world.run(home, "memory", "token", "remote", CANARY, stdin="")).code == 2
        assert (await world.run(home, "memory", "token", "remote", stdin="two\x01lines")).code == 1
        assert not (home.lodger / "config" / "secrets" / "memory-remote.key").exists()
