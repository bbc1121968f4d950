"""The story of the main job through the page, in a real browser at phone size, with real hub, daemon and boxes."""

import json
import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.browser import Browser, Page
from support.page_rig import IDLE, PageRig, artifact, idle, ready, say
from support.program_client import bash, local_client, open_conversation, script
from support.programs import until

pytestmark = pytest.mark.timeout(240)


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
    await a_killed_hub_heals_without_a_reload(rig, phone)
    await a_killed_daemon_comes_back(rig, phone)
    await a_second_device_joins_and_is_revoked(rig, browser, phone)
    await only_the_own_origin_was_asked(rig, phone)


async def an_answer_streams_as_markdown(page: Page) -> None:
    text = "# Tides\n\nThe **harbour** is `deep`.\n\n```sh\nls -l\n```\n\n[a link](https://example.org/x)\n\nThe end."
    await say(page, "Tell me. " + script({"text": text, "chunks": 20, "delay_ms": 150}))
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
        await page.until("!!document.querySelector('.question .diff .add')", "the change is shown")
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
    await say(page, "Slowly. " + script({"numbered": 400, "delay_ms": 200}))
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
    await say(page, "reload me " + script({"numbered": 60, "delay_ms": 120}))
    await page.sees("w9 ", "article.agent-message:last-of-type")
    await page.type("textarea", "a draft")
    await page.reload()
    await page.sees("w12 ", "article.agent-message:last-of-type")
    assert not await page.run(IDLE), "it streams on after the reload"
    await whole_once(page, 60, "reload me")
    assert await page.run("document.querySelector('textarea').value") == "a draft"
    await clear(page)


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


async def a_killed_hub_heals_without_a_reload(rig: PageRig, page: Page) -> None:
    """In mid-turn; what was written meanwhile goes out in its order, and a draft stays."""
    await page.run("window.sameVisit = true")
    answers = "[...document.querySelectorAll('article.agent-message')].map((one) => one.innerText.trim())"
    before = (await page.run(answers)).count(numbered(60))
    await say(page, "hub dies again " + script({"numbered": 60, "delay_ms": 60}))
    await page.sees("w9 ", "article.agent-message:last-of-type")
    assert rig.hub is not None
    await rig.hub.killed()
    await page.sees("The hub does not answer", ".banner")
    marks = ["written first", "written second", "written third"]
    for mark in marks:
        await say(page, mark)
    await page.type("textarea", "still thinking")
    await rig.start_hub()
    await page.until("!document.querySelector('.banner')", "the banner is gone", 40)
    await page.until("!document.querySelector('.delivery')", "all messages have been handed over", 40)
    await idle(page)
    whole = (await page.run(answers)).count(numbered(60))
    assert whole == before + 1, "the stream went on where it was, and nothing of it is shown twice"
    said = await page.run("[...document.querySelectorAll('article.user-message')].map((one) => one.innerText)")
    # Those that wait together may become one message.
    lines = [line for one in said for line in one.splitlines() if line.startswith("written")]
    assert lines == marks
    assert await page.run("window.sameVisit"), "nobody loaded the page again"
    assert await page.run("document.querySelector('textarea').value") == "still thinking"
    await clear(page)


async def clear(page: Page) -> None:
    await page.type("textarea", "x", instead=True)
    await page.send("Input.dispatchKeyEvent", type="keyDown", key="Backspace", windowsVirtualKeyCode=8)
    await page.send("Input.dispatchKeyEvent", type="keyUp", key="Backspace", windowsVirtualKeyCode=8)
    await page.until("document.querySelector('textarea').value === ''", "the draft is gone")


async def a_killed_daemon_comes_back(rig: PageRig, page: Page) -> None:
    await say(page, "daemon dies " + script({"numbered": 60, "delay_ms": 60}))
    await page.sees("w9 ", "article.agent-message:last-of-type")
    assert rig.daemon is not None
    await rig.daemon.killed()
    await page.sees("is not connected, last heard", ".banner")
    await say(page, "while it slept " + script({"text": "awake again"}))
    await page.sees(f"Waits for {rig.machine_name} to wake")
    await page.screenshot(artifact("machine-away.png"))
    await page.press("Conversations")
    await page.press("All machines")
    await page.sees("A message waits for it to wake")
    await page.run("history.go(-2)")
    await page.sees(f"Waits for {rig.machine_name} to wake", "main.transcript")
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
    after = await page.text("main.transcript")
    assert after.splitlines() == before.splitlines(), "the transcript says the same"


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
    assert len(tablet.open_sockets) == 1
    begun = time.monotonic()
    await rig.ask_hub("DELETE", f"/v1/devices/{device['id']}")
    await until(lambda: not tablet.open_sockets, "the tablet's socket is closed", 5)
    assert time.monotonic() - begun < 5
    await tablet.sees("This device is no longer paired", limit_s=5)
    assert not tablet.open_sockets
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


async def test_the_agent_asks_the_person_something(rig: PageRig, browser: Browser) -> None:
    page = await rig.paired(browser, "phone")
    await rig.conversation(page)
    options = [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cool"}]
    questions = [
        {"question": "Which colour?", "header": "Colour", "multiSelect": False, "options": options},
        {
            "question": "Which days?",
            "header": "Days",
            "multiSelect": True,
            "options": [{"label": "Mon"}, {"label": "Tue"}],
        },
    ]
    ask = {"name": "AskUserQuestion", "arguments": {"questions": questions}}
    await say(page, script({"calls": [ask]}, {"text": "thank you"}))
    await page.sees("Which colour?", ".question")
    assert await page.run("document.querySelector('.question .main').disabled"), "both want an answer"
    await page.press("Blue cool", "label.check")
    await page.press("Tue", "label.check")
    await page.type("[aria-label='Other words: Which days?']", "and Friday")
    await page.screenshot(artifact("choices.png"))
    await page.press("Answer")
    await page.sees("thank you", "article.agent-message")
    await idle(page)
    bodies = json.dumps([request["body"] for request in await rig.endpoint.requests()])
    assert "Which colour?\\n  Blue" in bodies
    assert "Which days?\\n  Tue, and Friday" in bodies
    assert page.faults == []


async def test_a_wait_before_the_model_is_asked_again_says_how_long(rig: PageRig, browser: Browser) -> None:
    page = await rig.paired(browser, "phone")
    await rig.conversation(page)
    fault = {"status": 429, "message": "Too many at once", "retry_after": "6"}
    await say(page, script({"fault": fault, "fault_times": 1, "text": "now it works"}))
    await page.until(
        "/Trying again in [1-6] s/.test(document.querySelector('.activity')?.innerText)", "the wait is told"
    )
    await page.sees("now it works", "article.agent-message")
    await idle(page)
