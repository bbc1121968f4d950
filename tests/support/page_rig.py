"""A hub, a machine and a model for tests of the page, and what a person does on it."""

import asyncio
import json
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.browser import Browser, Page
from support.patience import LIMIT_S
from support.programs import ROOT, Endpoint, Home, Program, World, free_port

ARTIFACTS = ROOT / "test-artifacts"
PHONE = (360, 740)

COMPOSER = "textarea"
TRANSCRIPT = "main.transcript"
IDLE = "!document.querySelector('.activity') && !document.querySelector('.stop')"


@dataclass
class PageRig:
    """One hub with one machine."""

    world: World
    home: Home
    endpoint: Endpoint
    port: int = field(default_factory=free_port)
    hub: Program | None = None
    daemon: Program | None = None
    machine_name: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start_hub(self) -> None:
        self.hub = await self.world.hub(self.home, port=self.port)
        assert self.hub.first, self.hub.last_words()

    async def start_daemon(self, *options: str) -> None:
        token = self.home.state / "hub" / "machine.token"
        self.daemon = await self.world.daemon(
            self.home,
            "--hub",
            self.url,
            "--hub-token-file",
            str(token),
            *options,
            endpoint=self.endpoint,
            cwd=self.home.workspace,
        )
        assert self.daemon.first, self.daemon.last_words()
        self.machine_name = str(self.daemon.first["machine"])

    async def ask_hub(self, method: str, path: str) -> Any:
        """As the owner, on the hub's own machine."""
        token = (self.home.state / "hub" / "client.token").read_text().strip()

        def ask() -> Any:
            request = urllib.request.Request(f"{self.url}{path}", method=method)
            request.add_header("Authorization", f"Bearer {token}")
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(request, timeout=LIMIT_S) as answer:
                return json.loads(answer.read())

        return await asyncio.to_thread(ask)

    async def pairing_link(self) -> str:
        made = await self.ask_hub("POST", "/v1/pairings")
        return str(made["links"][0]["url"]).replace("localhost", "127.0.0.1")

    async def paired(self, browser: Browser, name: str, size: tuple[int, int] = PHONE) -> Page:
        """A device that has followed a pairing link."""
        page = await browser.page(*size, touch=size[0] < 1000)
        await page.open(await self.pairing_link())
        await page.type("#name", name, instead=True)
        await page.press("Pair this device")
        await page.until("!!document.querySelector('.light.on')", "a machine is connected")
        return page

    async def conversation(self, page: Page) -> None:
        """From the list of machines to the main conversation of the only agent, which is made if need be."""
        await page.press(self.machine_name, ".card-title, .side-machine .clip")
        await page.until("!!document.querySelector('.agent, .empty')", "the agents are listed")
        if await page.run("!!document.querySelector('.empty')"):
            await page.press("Make it")
        else:
            await page.press("Main conversation", ".row .clip")
        await page.until(f"!!document.querySelector('{COMPOSER}')", "the conversation is open")
        await ready(page)


async def ready(page: Page) -> None:
    await page.until(
        "!!document.querySelector('main.transcript') && !document.querySelector('.banner')"
        " && document.querySelector('main.transcript').ariaBusy === 'false'",
        "the conversation is loaded",
    )


async def say(page: Page, text: str) -> None:
    await page.type(COMPOSER, text)
    await page.press("Send")


async def idle(page: Page, limit_s: float = 40) -> None:
    await page.until(IDLE, "the turn has ended", limit_s)


async def count(page: Page, words: str) -> int:
    """How often the words stand in the transcript."""
    text = await page.run(f"document.querySelector('{TRANSCRIPT}').innerText")
    return str(text).count(words)


def artifact(name: str) -> Path:
    return ARTIFACTS / name
