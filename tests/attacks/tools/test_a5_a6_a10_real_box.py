"""A5, A6, A10 in a real box: no variable outlives its call, none comes from the model, no argument opens the box."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.judge import RuleSet, judge
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.permissions.core.rules import parse_rule
from lodger_tools.permissions.core.verdicts import CallToJudge, Denied
from lodger_tools.toolbox_contract import ToolOutcome, ToolRequest
from support.real_boxes import box_user_for_tests, workspace_for_tests
from support.tool_room import ToolRoom, closing

pytestmark = pytest.mark.needs("bwrap")

LOADERS = (
    "PYTHONSTARTUP", "JAVA_TOOL_OPTIONS", "DOTNET_STARTUP_HOOKS", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT",
    "DYLD_INSERT_LIBRARIES", "PATH", "BASH_ENV", "ENV", "PROMPT_COMMAND", "NODE_OPTIONS", "PERL5OPT", "RUBYOPT",
    "GIT_SSH_COMMAND", "GIT_CONFIG_GLOBAL", "IFS", "SHELLOPTS", "PS4", "HOME",
)  # fmt: skip


class Room(ToolRoom):
    async def bash(self, command: str, environment: dict[str, str] | None = None, **more: object) -> ToolOutcome:
        self.count += 1
        arguments: JsonObject = {"command": command, **more}  # type: ignore[dict-item]
        request = ToolRequest(f"k{self.count}", "Bash", arguments, self.key, str(self.workspace), environment or {})
        return await self.toolbox.run(request)


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    with workspace_for_tests() as workspace:
        async with closing(Room(tmp_path, workspace)) as room:
            yield room


TRAPS = {
    "export": "export TRAP=sprung",
    "typeset": "typeset -gx TRAP=sprung",
    "readonly": "readonly TRAP=sprung; export TRAP",
    "function": "ls() { echo sprung; }; export -f ls",
    "alias": "shopt -s expand_aliases; alias ls='echo sprung'",
    "path": "mkdir -p bin; printf '#!/bin/sh\\necho sprung\\n' > bin/ls; chmod +x bin/ls; export PATH=$PWD/bin:$PATH",
    "startup": "for f in bashrc bash_profile profile bash_env; do echo 'echo sprung; TRAP=sprung' > ~/.$f; done",
    "bash-env": "echo 'echo sprung' > trap.sh; export BASH_ENV=$PWD/trap.sh",
    "hash": "mkdir -p bin; printf '#!/bin/sh\\necho sprung\\n' > bin/ls; chmod +x bin/ls; hash -p $PWD/bin/ls ls",
    "folder": "cd /; set -a",
}  # fmt: skip


@pytest.mark.parametrize("trap", TRAPS.values(), ids=list(TRAPS))
async def test_a5_what_one_call_sets_does_not_reach_the_next(room: Room, trap: str) -> None:
    await room.bash(trap)
    seen = await room.bash("ls /; echo ${TRAP-unset} $PWD")
    assert "sprung" not in seen.text
    assert seen.text.endswith(f"unset {room.workspace}\n")


@pytest.mark.parametrize("trap", [TRAPS["export"], TRAPS["function"], TRAPS["path"]])
async def test_a5_control_within_one_call_it_would(room: Room, trap: str) -> None:
    assert "sprung" in (await room.bash(f"{trap}; bash --norc -c 'ls; echo $TRAP'")).text


@pytest.mark.parametrize("name", LOADERS)
async def test_a6_a_variable_that_changes_what_programs_do_is_refused(room: Room, name: str) -> None:
    outcome = await room.bash("echo ran", {name: "/tmp/x"})
    assert outcome.refused and "ran" not in outcome.text
    for argument in ("env", "environment", "envs"):
        seen = await room.bash("env", **{argument: {name: "planted-value"}})
        assert "planted-value" not in seen.text


async def test_a6_control_an_allowed_one_arrives(room: Room) -> None:
    assert (await room.bash("echo $LANG", {"LANG": "C.UTF-8"})).text == "C.UTF-8\n"


OPENERS: dict[str, JsonObject] = {
    "off": {"sandbox": False, "dangerouslyDisableSandbox": True, "dangerously_disable_sandbox": True},
    "profile": {"profile": "person", "box": None, "unsandboxed": True, "no_sandbox": True},
    "roots": {"writable_roots": ["/"], "cwd": "/", "workdir": "/", "mounts": [["/", "/"]], "workspace": "/"},
    "network": {"network": True, "allow_network": ["*"], "with_escalated_permissions": True},
}


@pytest.fixture
def outside(room: Room) -> AsyncIterator[Path]:  # type: ignore[misc]
    """A file of the box's own user beside its workspace: nothing but the box keeps it."""
    with workspace_for_tests() as folder:
        user = box_user_for_tests()
        file = folder / "precious.txt"
        file.write_text("precious")
        os.chown(file, user.uid, user.gid)
        yield file  # type: ignore[misc]


@pytest.mark.parametrize("arguments", OPENERS.values(), ids=list(OPENERS))
async def test_a10_no_argument_of_a_tool_opens_the_box(room: Room, outside: Path, arguments: JsonObject) -> None:
    await room.bash(f"rm -rf {outside} ; echo planted > {outside.parent}/x", **arguments)
    assert outside.read_text() == "precious"
    assert not (outside.parent / "x").exists()


DRESSES = {
    "proc-root": "/proc/self/root/usr/bin/rm -rf {}",
    "renamed-copy": "cp /bin/rm ./harmless && ./harmless -rf {}",
    "loader": "$(ls /lib64/ld-linux-*.so.* /lib/ld-linux-*.so.* 2>/dev/null | head -1) /bin/rm -rf {}",
    "other-program": "perl -e 'unlink \"{}\"'",
    "own-shell": "printf 'rm -rf %s' {} | base64 | base64 -d | sh",
}


@pytest.mark.parametrize("command", DRESSES.values(), ids=list(DRESSES))
async def test_a10_what_no_list_of_words_catches_the_box_still_holds(room: Room, outside: Path, command: str) -> None:
    await room.bash(command.format(outside))
    assert outside.read_text() == "precious"


def test_a10_a_denied_program_is_denied_by_any_path_to_it() -> None:
    rules = RuleSet(deny=(parse_rule("Bash(rm:*)"),))
    for command in ("/proc/self/root/usr/bin/rm x", "../../bin/rm x", "/proc/1/root/bin/rm x"):
        call = CallToJudge("Bash", {"command": command}, "/work", "/work", None)
        assert isinstance(judge(call, rules, Mode.UNRESTRICTED, "/home/ada"), Denied)
