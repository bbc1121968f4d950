"""A real Chromium, driven over its debugging socket: what a person sees, presses and types.

Nothing is installed for it beyond the browser; `chromium_path` finds that. Every wait has a limit.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from support.patience import LIMIT_S

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-proxy-server",
    "--remote-debugging-port=0",
    "--hide-scrollbars",
)

Json = dict[str, Any]


def chromium_path() -> str | None:
    """The browser of this machine; `LODGER_CHROMIUM` names another."""
    named = os.environ.get("LODGER_CHROMIUM")
    return named or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class NotOnPage(AssertionError):
    """What a test waited for did not come about on the page."""


@dataclass
class Browser:
    """One Chromium process. Contexts in it share nothing, as two devices do not."""

    socket: ClientConnection
    events: dict[str, Callable[[str, Json], None]] = field(default_factory=dict)
    _waiting: "dict[int, asyncio.Future[Json]]" = field(default_factory=dict)
    _ids: "itertools.count[int]" = field(default_factory=itertools.count)

    async def send(self, method: str, session: str | None = None, **arguments: Any) -> Json:
        number = next(self._ids)
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        frame: Json = {"id": number, "method": method, "params": arguments}
        if session:
            frame["sessionId"] = session
        await self.socket.send(json.dumps(frame))
        return await asyncio.wait_for(answer, LIMIT_S)

    async def read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for text in self.socket:
                frame = json.loads(text)
                if (number := frame.get("id")) is None:
                    if hear := self.events.get(frame.get("sessionId", "")):
                        hear(frame["method"], frame["params"])
                elif (answer := self._waiting.pop(number, None)) and not answer.done():
                    if "error" in frame:
                        answer.set_exception(NotOnPage(f"{frame['error']}"))
                    else:
                        answer.set_result(frame["result"])

    async def page(self, width: int, height: int, *, touch: bool = True) -> "Page":
        """An empty page of a device that nobody has used yet."""
        context = (await self.send("Target.createBrowserContext"))["browserContextId"]
        made = await self.send("Target.createTarget", url="about:blank", browserContextId=context)
        attached = await self.send("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        page = Page(self, attached["sessionId"], context)
        self.events[page.session] = page.hear
        for domain in ("Page", "Runtime", "Network", "Log"):
            await page.send(f"{domain}.enable")
        await page.resize(width, height, touch=touch)
        return page


@dataclass
class Page:
    """One tab. `requests` are the addresses it asked for, `faults` what it complained about, `open_sockets` the
    WebSockets that it has."""

    browser: Browser
    session: str
    context: str
    requests: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)
    open_sockets: set[str] = field(default_factory=set)

    def hear(self, method: str, event: Json) -> None:
        match method:
            case "Network.requestWillBeSent":
                self.requests.append(event["request"]["url"])
            case "Network.webSocketCreated":
                self.requests.append(event["url"])
                self.open_sockets.add(event["requestId"])
            case "Network.webSocketClosed":
                self.open_sockets.discard(event["requestId"])
            case "Runtime.exceptionThrown":
                self.faults.append(json.dumps(event["exceptionDetails"])[:2000])
            case "Log.entryAdded" if event["entry"]["source"] == "security":
                self.faults.append(event["entry"]["text"])
            case "Page.javascriptDialogOpening":
                self.dialogs.append(event["message"])

    async def send(self, method: str, **arguments: Any) -> Json:
        return await self.browser.send(method, self.session, **arguments)

    async def resize(self, width: int, height: int, *, touch: bool = True) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch
        )
        await self.send("Emulation.setTouchEmulationEnabled", enabled=touch)
        # What depends on the width is drawn anew within two frames.
        await self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    async def colours(self, scheme: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await self.send("Emulation.setEmulatedMedia", features=[feature])

    async def open(self, url: str) -> None:
        await self.send("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'", "the page is loaded")

    async def reload(self) -> None:
        await self.run("window.beforeReload = true")
        await self.send("Page.reload")
        await self.until("!window.beforeReload && document.readyState === 'complete'", "the page is loaded again")

    async def run(self, script: str) -> Any:
        """The value of an expression on the page."""
        done = await self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise NotOnPage(json.dumps(done["exceptionDetails"])[:2000])
        return done["result"].get("value")

    async def until(self, script: str, what: str, limit_s: float = LIMIT_S) -> Any:
        """Wait until an expression is true on the page; its value."""
        deadline = asyncio.get_running_loop().time() + limit_s
        while True:
            found = None
            with contextlib.suppress(NotOnPage):
                found = await self.run(script)
            if found:
                return found
            if asyncio.get_running_loop().time() > deadline:
                text = await self.run("document.body.innerText")
                raise NotOnPage(f"within {limit_s:g} s: {what}\n--- the page says\n{text}\n--- faults {self.faults}")
            await asyncio.sleep(0.02)

    async def text(self, selector: str = "body") -> str:
        return str(await self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    async def sees(self, words: str, selector: str = "body", limit_s: float = LIMIT_S) -> None:
        script = f"(document.querySelector({json.dumps(selector)})?.innerText ?? '').includes({json.dumps(words)})"
        await self.until(script, f"{words!r} is shown in {selector}", limit_s)

    async def gone(self, words: str, selector: str = "body", limit_s: float = LIMIT_S) -> None:
        script = f"!(document.querySelector({json.dumps(selector)})?.innerText ?? '').includes({json.dumps(words)})"
        await self.until(script, f"{words!r} is no longer shown in {selector}", limit_s)

    async def press(self, words: str, selector: str = "button, a, summary, [role=button]") -> None:
        """Press what bears these words, where a finger would: nothing may lie over it."""
        await self.until(f"!!{_FIND}({json.dumps(selector)}, {json.dumps(words)})", f"{words!r} can be pressed")
        script = f"""(() => {{
            const found = {_FIND}({json.dumps(selector)}, {json.dumps(words)});
            if (!found) return null;
            found.scrollIntoView({{block: "center"}});
            const box = found.getBoundingClientRect();
            const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
            const top = document.elementFromPoint(x, y);
            return found.contains(top) || (top && top.contains(found)) ? {{x, y}} : {{covered: top?.outerHTML}};
        }})()"""
        place, before = await self.until(script, f"{words!r} is there"), None
        async with asyncio.timeout(LIMIT_S):
            while place != before:
                # What still moves is pressed beside: a person waits until it rests.
                await asyncio.sleep(0.02)
                place, before = await self.until(script, f"{words!r} is there"), place
        if "x" not in place:
            raise NotOnPage(f"{words!r} is covered by {place['covered']}")
        for kind in ("mousePressed", "mouseReleased"):
            await self.send(
                "Input.dispatchMouseEvent", type=kind, x=place["x"], y=place["y"], button="left", clickCount=1
            )

    async def type(self, selector: str, text: str, *, instead: bool = False) -> None:
        """Write into a field; `instead` of what stands there."""
        name = json.dumps(selector)
        await self.until(f"!!document.querySelector({name})", f"{selector} is there")
        await self.run(
            f"document.querySelector({name}).focus()"
            + (f"; document.querySelector({name}).select()" if instead else "")
        )
        await self.send("Input.insertText", text=text)

    async def new_tab(self) -> "Page":
        """The tab that this page has opened."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                targets = (await self.browser.send("Target.getTargets"))["targetInfos"]
                own = [one for one in targets if one["type"] == "page" and one.get("browserContextId") == self.context]
                fresh = [one for one in own if not one["attached"]]
                if fresh:
                    break
                await asyncio.sleep(0.05)
        attached = await self.browser.send("Target.attachToTarget", targetId=fresh[0]["targetId"], flatten=True)
        page = Page(self.browser, attached["sessionId"], self.context)
        self.browser.events[page.session] = page.hear
        return page

    async def hide(self) -> None:
        """Turn to another tab: this one goes on in the background."""
        made = await self.browser.send("Target.createTarget", url="about:blank", browserContextId=self.context)
        await self.browser.send("Target.activateTarget", targetId=made["targetId"])
        await self.until("document.visibilityState === 'hidden'", "the page is in the background")

    async def pick(self, selector: str, files: list[Path]) -> None:
        """Choose files in a field for files."""
        root = (await self.send("DOM.getDocument"))["root"]["nodeId"]
        field_ = (await self.send("DOM.querySelector", nodeId=root, selector=selector))["nodeId"]
        await self.send("DOM.setFileInputFiles", nodeId=field_, files=[str(file) for file in files])

    async def screenshot(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        taken = await self.send("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(taken["data"]))

    async def close(self) -> None:
        await self.browser.send("Target.disposeBrowserContext", browserContextId=self.context)


_FIND = """((selector, words) => [...document.querySelectorAll(selector)].find((one) =>
    one.getClientRects().length && !one.disabled
    && (one.innerText.trim() === words || one.getAttribute("aria-label") === words)))"""


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser with a profile of its own, which is gone afterwards."""
    path = chromium_path()
    assert path is not None, "no Chromium on this machine: see chromium_path"
    profile = Path(tempfile.mkdtemp(prefix="lodger-chromium-"))
    process = await asyncio.create_subprocess_exec(
        path,
        *FLAGS,
        f"--user-data-dir={profile}",
        "about:blank",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        socket = await connect(await _address(profile), max_size=None, compression=None, proxy=None)
        browser = Browser(socket)
        reading = asyncio.create_task(browser.read())
        try:
            yield browser
        finally:
            with contextlib.suppress(Exception):
                await browser.send("Browser.close")
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await socket.close()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.wait_for(process.wait(), LIMIT_S)
        await asyncio.to_thread(shutil.rmtree, profile, ignore_errors=True)


async def _address(profile: Path) -> str:
    """Where the debugging socket is: the browser writes its port into its profile."""
    deadline = asyncio.get_running_loop().time() + LIMIT_S
    while asyncio.get_running_loop().time() < deadline:
        with contextlib.suppress(OSError, ValueError, IndexError):
            port = int((profile / "DevToolsActivePort").read_text().splitlines()[0])
            return await asyncio.to_thread(_ask, port)
        await asyncio.sleep(0.05)
    raise NotOnPage("the browser did not start")


def _ask(port: int) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/json/version", timeout=LIMIT_S) as answer:
        return str(json.loads(answer.read())["webSocketDebuggerUrl"])
