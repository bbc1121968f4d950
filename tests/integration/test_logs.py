"""`lodger logs` as a person types it: real logs of hub and daemon, and a journal where they are services."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_cli.terminal import Exit
from support.programs import HEEDING, LODGER, World, new_world

JOURNALCTL = """#!/bin/sh
echo "$@" >> "$HOME/asked"
[ -e "$HOME/refuse" ] && { echo "No journal files were opened" >&2; exit 1; }
cat "$HOME/journal"
case "$*" in *--follow*) tail -n 0 -F "$HOME/more";; esac
"""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("logs") as made:
        yield made


async def test_both_logs_are_shown_in_order_and_followed(world: World) -> None:
    home = world.home("a")
    nothing = await world.run(home, "logs", "--json")
    assert nothing.code == 3
    assert str(home.state / "daemon.log") in nothing.err
    hub = await world.start(
        "hub", [*LODGER, "hub", "--port", "0", "--log-file", str(home.state / "hub.log")], world.environment(home)
    )
    # Its token is wrong, so the daemon has something to say.
    token = home.lodger / "token"
    token.write_text("not-a-token\n")
    options = ("--hub", hub.first["url"], "--hub-token-file", str(token), "--log-file", str(home.state / "daemon.log"))
    await world.daemon(home, *options)
    following = await asyncio.create_subprocess_exec(
        *HEEDING, *LODGER, "logs", "--follow", "--json", "--lines", "200", "--part", "daemon",
        env=world.environment(home), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert following.stdout is not None
    async with asyncio.timeout(40):
        while True:
            record = json.loads(await following.stdout.readline())
            if "next try" in record["message"]:
                break
    assert (record["part"], record["level"], record["logger"]) == ("daemon", "INFO", "lodger_daemon.uplink.link")
    following.send_signal(signal.SIGINT)
    out, err = await asyncio.wait_for(following.communicate(), 20)
    assert following.returncode == 130, (out, err)
    assert b"Traceback" not in err
    shown = [json.loads(line) for line in (await world.run(home, "logs", "--json")).ok().out.splitlines()]
    assert record in shown
    times = [one["at"] for one in shown]
    assert times == sorted(times)
    one = (await world.run(home, "logs", "--lines", "1")).ok().out
    assert len(one.splitlines()) >= 1
    assert " daemon " in one or " hub " in one


async def test_a_reader_that_has_seen_enough_ends_it_quietly(world: World) -> None:
    home = world.home("a")
    home.state.mkdir()
    (home.state / "daemon.log").write_text("2026-11-30 19:45:36,123 INFO x: line\n" * 20_000)
    command = f"{' '.join(LODGER)} logs --lines 20000 | head -n 1"
    shell = await asyncio.create_subprocess_exec(
        "bash", "-o", "pipefail", "-c", command, env=world.environment(home),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(shell.communicate(), 40)
    assert (shell.returncode, out) == (Exit.PIPE_CLOSED, b"2026-11-30 19:45:36 daemon INFO x: line\n")
    assert b"Error" not in err


class Machine:
    """A HOME with a service of this user's, and what its journal is."""

    def __init__(self, base: Path) -> None:
        self.home, self.bin = base / "home", base / "bin"
        units = self.home / ".config" / "systemd" / "user"
        units.mkdir(parents=True)
        self.bin.mkdir()
        (units / "lodger-daemon.service").write_text("[Unit]\n")
        (self.bin / "journalctl").write_text(JOURNALCTL)
        (self.bin / "journalctl").chmod(0o755)

    def lodger(self, *arguments: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [sys.executable, "-m", "lodger_cli.main", "logs", *arguments],
            env={"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8"},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == code, done
        return done


def entry(message: str, second: int) -> str:
    unit = {"_SYSTEMD_USER_UNIT": "lodger-daemon.service"}
    return json.dumps({"__REALTIME_TIMESTAMP": f"{1_800_000_000 + second}000000", "MESSAGE": message, **unit}) + "\n"


def test_of_a_service_the_journal_is_read_and_of_the_rest_the_file(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (machine.home / "journal").write_text(entry("started", 1) + "not json\n" + entry("\x1b[31mred", 2))
    hub_log = machine.home / ".local" / "state" / "lodger" / "hub.log"
    hub_log.parent.mkdir(parents=True)
    hub_log.write_text("2020-01-01 00:00:00,000 WARNING hub: old\n")
    done = machine.lodger("--lines", "7")
    assert [line.split(" ", 2)[2] for line in done.stdout.splitlines()] == [
        "hub WARNING hub: old", "daemon started", "daemon \ufffd[31mred",
    ]  # fmt: skip
    asked = (machine.home / "asked").read_text()
    assert "--user-unit=lodger-daemon.service" in asked
    assert "--lines=7" in asked
    assert f"({hub_log})".replace("(", "(hub: ") in done.stderr
    (machine.home / "refuse").touch()
    assert "No journal files were opened" in machine.lodger("--part", "daemon", code=3).stderr
    assert "daemon or hub" in machine.lodger("--part", "page", code=2).stderr
