"""The story of the main job through the page, in a real browser at phone size, with real hub, daemon and boxes."""

import base64
import json
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.browser import Browser, Page, chromium
from support.page_rig import IDLE, PageRig, artifact, idle, ready, say
from support.program_client import bash, local_client, open_conversation, remember, script
from support.programs import new_world, until

pytestmark = pytest.mark.timeout(240)

HOSTILE = "<img src=x onerror=\"window.pwned='{0}';alert('{0}')\"><script>window.pwned='{0}'</script>"


@pytest.fixture
async def rig() -> AsyncIterator[PageRig]:
    async with new_world("page") as world:
        made = PageRig(world, world.home("desk"), await world.endpoint())
        await made.start_hub()
        await made.start_daemon()
        yield made


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


async def test_the_story_on_a_phone(rig: PageRig, browser: Browser) -> None:
    phone = await rig.paired(browser, "phone")
    assert "pair" not in str(await phone.run("location.href")), "the code stays out of history"
    await phone.until("navigator.serviceWorker.ready.then((one) => !!one.active)", "the page can open without the hub")
    hindrances = (await phone.send("Page.getInstallabilityErrors"))["installabilityErrors"]
    # Each device of this test is a private window, which is all that is held against it.
    assert [one["errorId"] for one in hindrances] == ["in-incognito"]
    await rig.conversation(phone)
    await an_answer_streams_as_markdown(phone)
    await questions_are_answered(rig, phone)
    await a_queue_is_edited_and_a_turn_stopped(rig, phone)
    await a_reload_in_mid_turn_loses_nothing(phone)
    await a_killed_hub_comes_back(rig, phone)
    await a_killed_daemon_comes_back(rig, phone)
    await a_second_device_joins_and_is_revoked(rig, browser, phone)
    await only_the_own_origin_was_asked(rig, phone)


async def an_answer_streams_as_markdown(page: Page) -> None:
    text = "# Tides\n\nThe **harbour** is `deep`.\n\n```sh\nls -l\n```\n\n[a link](https://example.org/x)\n\nThe end."
    await say(page, "Tell me. " + script({"text": text, "chunks": 20, "delay_ms": 60}))
    await page.sees("The harbour is deep.")
    assert "The end." not in await page.text("article.agent-message"), "all of it came at once"
    await idle(page)
    await page.sees("The end.", "article.agent-message")
    link = await page.run("(({href, rel, target}) => [href, rel, target])(document.querySelector('article a'))")
    assert link == ["https://example.org/x", "noopener noreferrer", "_blank"]
    tags = await page.run(
        "[...document.querySelectorAll('article.agent-message .markdown *')].map((one) => one.tagName)"
    )
    assert {"H3", "STRONG", "CODE", "PRE", "A"} <= set(tags)


async def questions_are_answered(rig: PageRig, page: Page) -> None:
    outside = rig.world.workspace(rig.world.base / "elsewhere")
    for behavior in ("Allow", "Deny"):
        path = outside / f"{behavior}.txt"
        path.write_text("low water\nhigh water\n")
        path.chmod(0o666)
        edit = {"file_path": str(path), "old_string": "low water", "new_string": "ebb"}
        read = {"name": "Read", "arguments": {"file_path": str(path)}}
        await say(
            page,
            script({"calls": [read]}, {"calls": [{"name": "Edit", "arguments": edit}]}, {"text": f"so {behavior}"}),
        )
        await page.sees("May the agent use Read?", ".question")
        await page.press("Allow")
        await page.sees("May the agent use Edit?", ".question")
        diff = await page.run(
            "[...document.querySelectorAll('.question .diff .add, .question .diff .remove')]"
            ".map((one) => [one.className, one.lastChild.previousSibling.textContent])"
        )
        assert diff == [["remove", "low water"], ["add", "ebb"]]
        assert "ebb" not in path.read_text()
        if behavior == "Allow":
            await page.screenshot(artifact("question-diff.png"))
        await page.press(behavior)
        await page.sees(f"so {behavior}", "article.agent-message:last-of-type")
        await page.until("!document.querySelector('.question')", "the card is gone")
        await idle(page)
        assert ("ebb" in path.read_text()) is (behavior == "Allow")
    for number in (1, 2):
        write = {"file_path": str(outside / f"{number}.txt"), "content": "x\n"}
        await say(page, script({"calls": [{"name": "Write", "arguments": write}]}, {"text": f"wrote {number}"}))
        if number == 1:
            await page.sees("May the agent use Write?", ".question")
            await page.press("Always")
        await page.sees(f"wrote {number}", "article.agent-message:last-of-type")
        await idle(page)
        assert (outside / f"{number}.txt").exists()
    await page.press("Options")
    await choose(page, "#mode", "strict")
    await say(page, script({"calls": [bash("echo exactly   this; true")]}, {"text": "asked first"}))
    await page.sees("May the agent use Bash?", ".question")
    assert await page.run("document.querySelector('.question pre').textContent") == "echo exactly   this; true"
    await page.press("Deny")
    await idle(page)
    await choose(page, "#mode", "standard")
    await page.press("Close")
    await say(page, script({"calls": [bash("echo out of the box")]}, {"text": "it ran"}))
    await page.sees("it ran", "article.agent-message:last-of-type")
    await idle(page)
    await page.press("Bash", "details.tool:last-of-type .tool-name")
    await page.until(
        "[...document.querySelectorAll('details.tool[open]')].some((one) => one.innerText.includes('out of the box'))",
        "the output",
    )


async def choose(page: Page, selector: str, value: str) -> None:
    """Choose in a list; the machine's word on it is what is shown afterwards."""
    name = json.dumps(selector)
    await page.run(
        f"(() => {{ const list = document.querySelector({name}); list.value = {json.dumps(value)};"
        " list.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )
    await page.until(f"document.querySelector({name}).value === {json.dumps(value)}", f"{value} is chosen")


async def a_queue_is_edited_and_a_turn_stopped(rig: PageRig, page: Page) -> None:
    await say(page, "Slowly. " + script({"numbered": 400, "delay_ms": 50}))
    await page.sees("w3 ")
    await say(page, "first in the queue")
    await page.sees("first in the queue", ".queue")
    await say(page, "second in the queue")
    await page.sees("second in the queue", ".queue")
    await page.press("Remove: second in the queue")
    await page.gone("second in the queue", ".queue")
    await page.press("Edit: first in the queue")
    await page.until(
        "document.querySelector('textarea').value === 'first in the queue'", "its text is back in the field"
    )
    await page.until("!document.querySelector('.queue')", "the queue is empty")
    await page.type("textarea", "rewritten " + script({"text": "as rewritten"}), instead=True)
    await page.press("Send")
    await page.sees("rewritten", ".queue")
    await page.press("Stop")
    await page.until("!document.querySelector('.stop')", "the turn has ended")
    assert "w399" not in await page.text()
    if await page.run(
        "[...document.querySelectorAll('.queue button')].some((one) => one.innerText === 'Send them now')"
    ):
        await page.press("Send them now")
    await page.sees("as rewritten", "article.agent-message:last-of-type")
    await idle(page)
    bodies = json.dumps([request["body"] for request in await rig.endpoint.requests()])
    assert "second in the queue" not in bodies


def numbered(words: int) -> str:
    return " ".join(f"w{number}" for number in range(words))


async def whole_once(page: Page, words: int, mark: str) -> None:
    """The last answer stands there entire, and nothing of it twice."""
    await idle(page)
    answer = await page.run("[...document.querySelectorAll('article.agent-message')].at(-1).innerText")
    assert answer.strip() == numbered(words)
    said = await page.run("[...document.querySelectorAll('article.user-message')].map((one) => one.innerText)")
    assert sum(mark in one for one in said) == 1, said


async def a_reload_in_mid_turn_loses_nothing(page: Page) -> None:
    await say(page, "reload me " + script({"numbered": 60, "delay_ms": 60}))
    await page.sees("w9 ", "article.agent-message:last-of-type")
    await page.type("textarea", "a draft")
    await page.reload()
    await page.sees("w12 ", "article.agent-message:last-of-type")
    assert not await page.run(IDLE), "it streams on after the reload"
    await whole_once(page, 60, "reload me")
    assert await page.run("document.querySelector('textarea').value") == "a draft"
    await page.type("textarea", "x", instead=True)
    await page.send("Input.dispatchKeyEvent", type="keyDown", key="Backspace", windowsVirtualKeyCode=8)
    await page.send("Input.dispatchKeyEvent", type="keyUp", key="Backspace", windowsVirtualKeyCode=8)
    await page.until("document.querySelector('textarea').value === ''", "the draft is gone")


async def a_killed_hub_comes_back(rig: PageRig, page: Page) -> None:
    await say(page, "hub dies " + script({"numbered": 60, "delay_ms": 60}))
    await page.sees("w9 ", "article.agent-message:last-of-type")
    assert rig.hub is not None
    await rig.hub.killed()
    await page.sees("The hub does not answer", ".banner")
    await say(page, "while it was dead " + script({"text": "heard after all"}))
    await page.sees("Waiting to be sent")
    await page.reload()
    await page.sees("The hub does not answer", ".banner")
    await page.sees("Waiting to be sent")
    await rig.start_hub()
    await page.until("!document.querySelector('.banner')", "the banner is gone")
    await page.sees("heard after all", "article.agent-message:last-of-type", 40)
    await idle(page)
    texts = await page.run("[...document.querySelectorAll('article.agent-message')].map((one) => one.innerText.trim())")
    assert texts[-2:] == [numbered(60), "heard after all"], texts[-3:]
    said = await page.run("[...document.querySelectorAll('article.user-message')].map((one) => one.innerText)")
    assert [sum(mark in one for one in said) for mark in ("hub dies", "while it was dead")] == [1, 1]


async def a_killed_daemon_comes_back(rig: PageRig, page: Page) -> None:
    await say(page, "daemon dies " + script({"numbered": 60, "delay_ms": 60}))
    await page.sees("w9 ", "article.agent-message:last-of-type")
    assert rig.daemon is not None
    await rig.daemon.killed()
    await page.sees("is not connected, last heard", ".banner")
    await say(page, "while it slept " + script({"text": "awake again"}))
    await page.sees(f"Waits for {rig.machine_name} to wake")
    await page.screenshot(artifact("machine-away.png"))
    await rig.start_daemon()
    await page.until("!document.querySelector('.banner')", "the banner is gone", 40)
    await page.sees("awake again", "article.agent-message:last-of-type", 40)
    await idle(page)
    said = await page.run("[...document.querySelectorAll('article.user-message')].map((one) => one.innerText)")
    assert [sum(mark in one for one in said) for mark in ("daemon dies", "while it slept")] == [1, 1], said
    texts = await page.run("[...document.querySelectorAll('article.agent-message')].map((one) => one.innerText.trim())")
    assert texts[-2:] == [numbered(60), "awake again"], texts[-3:]
    before = await page.text("main.transcript")
    await page.reload()
    await ready(page)
    assert (await page.text("main.transcript")).split() == before.split(), "the transcript says the same"


async def a_second_device_joins_and_is_revoked(rig: PageRig, browser: Browser, phone: Page) -> None:
    await say(phone, "join me " + script({"numbered": 60, "delay_ms": 80}))
    await phone.sees("w4 ", "article.agent-message:last-of-type")
    tablet = await rig.paired(browser, "tablet", (768, 1024))
    await rig.conversation(tablet)
    await tablet.sees("w12 ", "article.agent-message:last-of-type")
    await whole_once(tablet, 60, "join me")
    await whole_once(phone, 60, "join me")
    await say(tablet, "from the tablet " + script({"text": "heard on both"}))
    for page in (tablet, phone):
        await page.sees("from the tablet", "main.transcript")
        await page.sees("heard on both", "article.agent-message:last-of-type")
        await idle(page)
        said = await page.run("[...document.querySelectorAll('article.user-message')].map((one) => one.innerText)")
        assert "from the tablet" in said[-1], said[-2:]
    outside = rig.world.workspace(rig.world.base / "not-always-allowed")
    write = {"name": "Write", "arguments": {"file_path": str(outside / "both.txt"), "content": "x\n"}}
    await say(phone, script({"calls": [write]}, {"text": "settled"}))
    await phone.sees("May the agent use Write?", ".question")
    await tablet.sees("May the agent use Write?", ".question")
    await tablet.press("Deny")
    await phone.until("!document.querySelector('.question')", "the other device's answer counts here")
    await idle(phone)
    found: list[dict[str, Any]] = (await rig.ask_hub("GET", "/v1/devices"))["devices"]
    (device,) = [one for one in found if one["name"] == "tablet"]
    await rig.ask_hub("DELETE", f"/v1/devices/{device['id']}")
    begun = time.monotonic()
    await tablet.sees("This device is no longer paired", limit_s=5)
    assert time.monotonic() - begun < 5
    assert await tablet.run("Object.keys(localStorage)") == []
    await say(phone, script({"text": "the phone stays"}))
    await phone.sees("the phone stays", "article.agent-message:last-of-type")
    await only_the_own_origin_was_asked(rig, tablet)
    await tablet.close()


async def only_the_own_origin_was_asked(rig: PageRig, page: Page) -> None:
    hosts = {urlsplit(url).netloc for url in page.requests if not url.startswith(("data:", "blob:"))}
    assert hosts == {f"127.0.0.1:{rig.port}"}
    assert page.faults == []
    assert page.dialogs == []


async def test_nothing_hostile_runs(rig: PageRig, browser: Browser) -> None:
    """Scripts in a message, an answer, a tool's output, a file's name, memory, and the names of machine and device;
    foreign endpoints in the address (ATTACKS.md W1)."""
    name = HOSTILE.format("machine")[:60]
    token = (rig.home.state / "hub" / "machine.token").read_text().strip()
    body = {"deviceId": "fake", "connectionName": name, "metadata": {}}
    request = urllib.request.Request(
        f"{rig.url}/v1/environments/register",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
        assert answer.status == 200
    page = await rig.paired(browser, HOSTILE.format("device")[:60])
    await page.sees(name)
    await page.press("Settings")
    await page.sees("(this one)")
    await page.press("All machines")
    await rig.conversation(page)
    lines = (
        HOSTILE.format("answer"),
        "[one](javascript:window.pwned='link') [two](data:text/html,x) <a href='javascript:1'>three</a>",
        "![p](http://evil.test/p.png)",
        "| <b>x</b> |\n|---|\n| <iframe src='http://evil.test'></iframe> |",
        "<svg onload=\"window.pwned='svg'\">",
    )
    output = HOSTILE.format("output").replace("'", "")
    where = f"mkdir -p d && touch 'd/<img src=x onerror=alert(1)>.txt' && ls d && printf %s '{output}'"
    await say(
        page, HOSTILE.format("message") + script({"calls": [bash(where)]}, {"text": "\n\n".join(lines), "chunks": 30})
    )
    await page.sees("one two <a href=")
    await idle(page)
    await page.press("Bash", ".tool-name")
    await page.sees("onerror=alert(1)", "details.tool")
    outside = rig.world.workspace(rig.world.base / "elsewhere")
    path = str(outside / "<img src=x onerror=alert(2)>.txt")
    write = {"name": "Write", "arguments": {"file_path": path, "content": HOSTILE.format("diff")}}
    await say(page, script({"calls": [write]}, {"text": "asked"}))
    await page.sees("onerror=alert(2)", ".question")
    await page.press("Deny")
    await idle(page)
    fact = HOSTILE.format("memory").replace("'", "").replace('"', "")
    await say(page, script({"calls": [remember("fact", fact)]}, {"text": "kept it"}))
    await page.sees("kept it", "article.agent-message:last-of-type")
    await idle(page)
    await only_text_came_of_it(page)
    await page.press("Conversations")
    await page.press("Memory of Lodger")
    await page.sees("remember fact")
    for _ in range(int(await page.run("document.querySelectorAll('details:not([open])').length"))):
        await page.run("document.querySelector('details:not([open])')?.querySelector('summary').click()")
    await only_text_came_of_it(page)
    own = await page.run("location.origin")
    await page.open(f"{own}/?gatewayUrl=ws://evil.test/ws&endpoint=http://evil.test&token=x#/m/evil.test/a/c/default")
    await page.sees("Conversation")
    await page.open(f"{own}/?hub=http://evil.test")
    await page.sees("Connected")
    await only_same_hosts(rig, page)


async def only_text_came_of_it(page: Page) -> None:
    elements = await page.run("document.querySelectorAll('img, script:not([src]), iframe, svg[onload]').length")
    assert elements == 0, "no element comes of what others wrote"
    links = await page.run("[...document.links].map((one) => one.protocol).filter((one) => !/^https?:$/.test(one))")
    assert links == []
    assert await page.run("window.pwned ?? null") is None


async def only_same_hosts(rig: PageRig, page: Page) -> None:
    assert {urlsplit(url).netloc for url in page.requests if not url.startswith(("data:", "blob:"))} == {
        f"127.0.0.1:{rig.port}"
    }
    assert page.dialogs == []


async def test_a_picture_is_made_smaller_and_sent(rig: PageRig, browser: Browser, tmp_path: Path) -> None:
    page = await rig.paired(browser, "phone")
    await rig.conversation(page)
    made = await page.run(
        "(() => { const c = document.createElement('canvas'); c.width = 3000; c.height = 1500;"
        " c.getContext('2d').fillRect(0, 0, 1000, 1000); return c.toDataURL('image/png').split(',')[1]; })()"
    )
    picture = tmp_path / "picture.png"
    picture.write_bytes(base64.b64decode(made))
    root = (await page.send("DOM.getDocument"))["root"]["nodeId"]
    field = (await page.send("DOM.querySelector", nodeId=root, selector="input[type=file]"))["nodeId"]
    await page.send("DOM.setFileInputFiles", nodeId=field, files=[str(picture)])
    await page.until("!!document.querySelector('.picked img')", "the picture is shown")
    await say(page, "What is this? " + script({"text": "a square"}))
    await page.sees("a square", "article.agent-message")
    await idle(page)
    size = await page.run(
        "(({naturalWidth: w, naturalHeight: h}) => [w, h])(document.querySelector('.user-message img'))"
    )
    assert size == [1568, 784]
    (request,) = [one for one in await rig.endpoint.requests() if one["path"] == "/v1/chat/completions"]
    parts = request["body"]["messages"][-1]["content"]
    (shown,) = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    assert shown.startswith("data:image/jpeg;base64,")
    await page.reload()
    await ready(page)
    assert await page.run("document.querySelectorAll('.user-message img').length") == 1


async def test_a_question_waits_for_the_person(rig: PageRig, browser: Browser) -> None:
    """Asked while the page was away, it is there when the page comes."""
    async with local_client(rig.home.socket) as client:
        conversation = await open_conversation(client)
        path = rig.world.workspace(rig.world.base / "elsewhere") / "later.txt"
        write = {"name": "Write", "arguments": {"file_path": str(path), "content": "later\n"}}
        await conversation.say(script({"calls": [write]}, {"text": "done"}))
        await conversation.question()
        page = await rig.paired(browser, "phone")
        await rig.conversation(page)
        await page.sees("May the agent use Write?", ".question")
        assert await page.run("document.querySelectorAll('.question').length") == 1
        await page.press("Allow")
        await conversation.finished()
    await until(path.exists, "the file is written")
    await page.sees("done", "article.agent-message")
