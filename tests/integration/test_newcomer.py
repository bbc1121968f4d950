"""Somebody who has never seen Lodger: from nothing to the first answer on the page, with no question at a terminal.

The whole way (a clean clone, `make up`) is the soak form; without it the installed tree is what `make` would have made.
"""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.browser import Browser, chromium
from support.page_rig import COMPOSER, PHONE, PageRig, idle, ready, say
from support.programs import HEEDING, ROOT, Home, World, new_world

LIMIT_S = 300.0
"""Five minutes of a machine with two cores and a filled package cache."""
QUICK_LIMIT_S = 90.0
ADDRESS = re.compile(r"Page +(http://\S+)")
CODE = re.compile(r"Code +([0-9A-Z]{4}-[0-9A-Z]{4})")
NAME = re.compile(r"Lodger is up on (\S+)\.")
PASSED_ON = ("PIP_", "NPM_CONFIG_", "SSL_CERT_", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE")
"""Where packages come from here, and where they are kept, is this machine's affair."""


@dataclass
class NewHome(Home):
    """Without LODGER_HOME, as people have it."""

    @property
    def state(self) -> Path:
        return self.home / ".local" / "state" / "lodger"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("newcomer") as made:
        yield made


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@pytest.fixture
def home(world: World) -> NewHome:
    made = NewHome("new", world.base / "home", world.base / "unused", world.base / "home" / "lodger-work")
    made.home.mkdir(mode=0o755)
    world.homes.append(made)
    return made


def environment(home: NewHome) -> dict[str, str]:
    """A login's, and the package cache."""
    passed_on = {name: value for name, value in os.environ.items() if name.upper().startswith(PASSED_ON)}
    owner = Path.home()
    for name, file in (
        ("PIP_CONFIG_FILE", ".config/pip/pip.conf"),
        ("PIP_CACHE_DIR", ".cache/pip"),
        ("NPM_CONFIG_USERCONFIG", ".npmrc"),
        ("NPM_CONFIG_CACHE", ".npm"),
    ):
        if (owner / file).exists():
            passed_on.setdefault(name, str(owner / file))
    python = Path(shutil.which("python3") or sys.executable).parent
    return {**passed_on, "PATH": f"{python}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(home.home)}


class Typed:
    """A command somebody typed, with nobody to answer it: what it has said so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.said = ""

    @classmethod
    async def start(cls, argv: list[str], folder: Path, environment: dict[str, str]) -> "Typed":
        process = await asyncio.create_subprocess_exec(
            *HEEDING, *argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        return cls(process)

    async def read_until(self, pattern: re.Pattern[str], limit_s: float) -> str:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(limit_s):
                while (found := pattern.search(self.said)) is None:
                    line = await self._process.stdout.readline()
                    assert line, f"it ended before it said {pattern.pattern}:\n{self.said}"
                    self.said += line.decode()
        except TimeoutError:
            raise AssertionError(f"within {limit_s:.0f} s it did not say {pattern.pattern}:\n{self.said}") from None
        return found[1]

    async def ctrl_c(self) -> int:
        """To everything in its terminal's foreground. The rest of what it says is read too."""
        os.killpg(self._process.pid, signal.SIGINT)
        assert self._process.stdout is not None
        async with asyncio.timeout(40):
            self.said += (await self._process.stdout.read()).decode()
            return await self._process.wait()

    def kill(self) -> None:
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)


async def first_answer(
    world: World, home: NewHome, browser: Browser, argv: list[str], folder: Path, limit_s: float
) -> float:
    """From the typed command to the first answer on the page; seconds."""
    began = time.monotonic()
    typed = await Typed.start(argv, folder, environment(home))
    try:
        name = await typed.read_until(NAME, limit_s)
        address, code = await typed.read_until(ADDRESS, 20), await typed.read_until(CODE, 20)
        up_s = time.monotonic() - began
        page = await browser.page(*PHONE)
        await page.open(address.replace("localhost", "127.0.0.1"))
        await page.type("#code", code)
        await page.press("Pair this device")
        await page.sees("Connected")
        rig = PageRig(world, home, None, machine_name=name)  # type: ignore[arg-type]  # no model endpoint: practice
        await rig.conversation(page)
        await ready(page)
        await say(page, "What can you do?")
        await page.until("!!document.querySelector('article.agent-message')?.innerText.trim()", "an answer", 60)
        took_s = time.monotonic() - began
        await idle(page)
        assert await page.run(f"document.querySelector('{COMPOSER}').value") == ""
        print(f"newcomer: up after {up_s:.1f} s, first answer after {took_s:.1f} s")
        assert took_s < limit_s
        # make ends itself by the signal once what it started has ended in good order.
        assert await typed.ctrl_c() in (0, -signal.SIGINT), typed.said
        assert "Stopping" in typed.said
        assert not re.search(r"\[[yY]/[nN]\]|[Pp]assword", typed.said), typed.said
        return took_s
    finally:
        typed.kill()


@pytest.mark.timeout(240)
async def test_a_newcomer_has_the_first_answer_without_a_question(
    world: World, home: NewHome, browser: Browser
) -> None:
    lodger = [sys.executable, "-P", "-m", "lodger_cli.main"]
    await first_answer(world, home, browser, [*lodger, "up", "--port", "0"], home.home, QUICK_LIMIT_S)


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_a_newcomer_needs_a_clone_and_make_up_and_five_minutes(
    world: World, home: NewHome, browser: Browser
) -> None:
    clone = world.base / "lodger"
    await asyncio.to_thread(
        subprocess.run, ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True, timeout=60
    )
    await first_answer(world, home, browser, ["make", "up"], clone, LIMIT_S)
