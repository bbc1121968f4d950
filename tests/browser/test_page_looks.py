"""How the page looks and reads: every view at three widths, light and dark, as pictures to look at; axe-core's word."""

import json
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from support.browser import Browser, Page
from support.page_rig import PageRig, artifact, idle, ready, say
from support.program_client import bash, local_client, open_conversation, remember, script
from support.programs import ROOT, new_world

AXE: Final = ROOT / "hub" / "web" / "node_modules" / "axe-core" / "axe.min.js"

pytestmark = pytest.mark.timeout(240)

SIZES: Final = ((360, 740), (768, 1024), (1440, 900))

ANSWER: Final = """The backups run **every night at 02:30**; the last three went well.

1. The photos went to the second disk, 4.2 GB in 6 minutes.
2. The documents went there too, and to the cabin.

| folder | size | last copy |
|---|---:|---|
| `photos` | 212 GB | tonight |
| `documents` | 3.1 GB | tonight |

```sh
systemctl status backup.timer
journalctl -u backup --since yesterday
```

I noticed that `music` is in no list. Shall I add it?"""

SHOWN_PATHS: Final = """(() => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        walker.currentNode.nodeValue = walker.currentNode.nodeValue.replaceAll("FROM", "/home/kim/lists");
    }
})()"""
"""In the picture for the documentation a person's folder stands in place of a test's."""

LIST: Final = "photos\ndocuments\nletters\nprojects\n"


@pytest.fixture
async def rig() -> AsyncIterator[PageRig]:
    async with new_world("looks") as world:
        made = PageRig(world, world.home("desk"), await world.endpoint("--script", str(_script(world.base))))
        await made.start_hub()
        await made.start_daemon()
        yield made


def _script(base: Any) -> Any:
    """What the model says to messages without a script of their own, so that nothing odd stands in the pictures."""
    path = base / "script.json"
    path.write_text(json.dumps({"steps": [{"text": ANSWER}]}))
    return path


async def test_every_view(rig: PageRig, browser: Browser) -> None:
    page = await browser.page(*SIZES[0])
    await page.open(rig.url)
    await page.sees("Pair this device")
    await look(page, "pair")
    await page.open(await rig.pairing_link())
    await page.type("#name", "Phone", instead=True)
    await page.press("Pair this device")
    await page.sees("Connected")
    await rig.conversation(page)
    outside = rig.world.workspace(rig.world.base / "lists")
    plan = outside / "backup.txt"
    plan.write_text(LIST)
    plan.chmod(0o666)
    await page.until("!!document.querySelector('.composer')", "the composer")
    await say(page, "How are the backups?")
    await page.sees("Shall I add it?", "article.agent-message")
    await idle(page)
    await say(
        page,
        "Yes, please. "
        + script(
            {"calls": [bash("ls -la; echo backup.timer is active")]},
            {"calls": [{"name": "Read", "arguments": {"file_path": str(plan)}}]},
            {
                "calls": [
                    {
                        "name": "Edit",
                        "arguments": {
                            "file_path": str(plan),
                            "old_string": "letters\n",
                            "new_string": "letters\nmusic\n",
                        },
                    }
                ]
            },
            {"calls": [remember("backups", "Music is backed up too.")]},
            {"text": "Done: `music` is in the list from tonight on."},
        ),
    )
    await page.sees("May the agent use Read?", ".question")
    await page.press("Allow")
    await page.sees("May the agent use Edit?", ".question")
    # Scripts are for the model; people do not write them.
    await page.run(
        "for (const one of document.querySelectorAll('.user-message p'))"
        " one.textContent = one.textContent.replace(/ <<.*>>/s, '')"
    )
    await look(page, "question")
    await page.colours("light")
    await page.resize(390, 780)
    await page.run("document.querySelector('main.transcript').scrollTop = 1e6")
    await page.run(SHOWN_PATHS.replace("FROM", str(outside)))
    await page.screenshot(artifact("docs-page.png"))
    await page.press("Allow")
    await page.sees("from tonight on", "main.transcript")
    await idle(page)
    await page.press("Bash", "details.tool:first-of-type .tool-name")
    await look(page, "chat")
    await page.press("Options")
    await page.until("document.querySelectorAll('#model option').length > 1", "the models are listed")
    await look(page, "options")
    await page.press("Conversations")
    await page.sees("Main conversation")
    await look(page, "machine")
    await page.press("More about Main conversation")
    await page.press("New agent")
    await page.press("More about Lodger")
    await page.press("Delete")
    await look(page, "manage")
    await page.press("More about Lodger")
    await page.press("Status")
    await page.sees("Sandbox")
    await page.sees("Spent today by Lodger")
    await page.sees("price of 6 steps unknown", "dl")
    await look(page, "status")
    await page.press("Conversations")
    await page.press("Memory of Lodger")
    await page.sees("remember backups")
    await page.press("remember backups", "summary .clip")
    await page.until("!!document.querySelector('details[open] .diff, details[open] .soft')", "the change is shown")
    await look(page, "memory")
    await page.press("Conversations")
    await page.press("Search")
    await page.type("#query", "backup*")
    await page.press("Find")
    await page.sees("You in Main conversation")
    await look(page, "search")
    await page.press("Conversations")
    await page.press("All machines")
    await page.sees("Connected")
    await look(page, "machines")
    await page.press("Settings")
    await page.sees("(this one)")
    await look(page, "settings")
    await a_question_elsewhere(rig, page)
    assert rig.daemon is not None
    await rig.daemon.stop()
    await page.sees("Not connected, last heard")
    await look(page, "machines-away")
    assert page.faults == []


async def a_question_elsewhere(rig: PageRig, page: Page) -> None:
    async with local_client(rig.home.socket) as client:
        other = await open_conversation(client, new=True)
        body = {"agent_id": other.runtime["agent_id"], "summary": "The long way round to a title without an end"}
        command = {"type": "conversation_update", "conversation_id": other.runtime["conversation_id"], "body": body}
        assert (await client.request(command))["success"]
        write = {"name": "Write", "arguments": {"file_path": str(rig.world.base / "x.txt"), "content": "x"}}
        await other.say(script({"calls": [write]}))
        question = await other.question()
        await page.press("All machines")
        await rig.conversation(page)
        await page.sees("The long way round", ".elsewhere")
        await look(page, "elsewhere")
        await page.press("Conversations")
        await page.sees("asks you", ".badge.asks")
        await look(page, "badge")
        await other.answer(question, "deny", "not now")
        await other.finished()
    await page.press("All machines")


async def look(page: Page, name: str) -> None:
    """Pictures in every size and colour; no view scrolls sideways; nothing serious for people with other senses."""
    found: list[str] = []
    for width, height in SIZES:
        await page.resize(width, height, touch=width < 1000)
        for scheme in ("light", "dark"):
            await page.colours(scheme)
            await page.screenshot(artifact(f"{name}-{width}-{scheme}.png"))
            found += [f"{width} {scheme}: {fault}" for fault in await axe(page)]
        wide = await page.run("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{name} at {width} is {wide} px too wide"
    await page.resize(*SIZES[0])
    await page.colours("light")
    assert found == [], name


async def axe(page: Page) -> list[str]:
    if not await page.run("!!window.axe"):
        await page.run(AXE.read_text("utf-8") + "; true")
    results: list[dict[str, Any]] = await page.run("axe.run(document).then((done) => done.violations)")
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes']]}"
        for one in results
        if one["impact"] in ("serious", "critical")
    ]


async def test_the_keyboard_alone_will_do(rig: PageRig, browser: Browser) -> None:
    page = await rig.paired(browser, "Laptop", SIZES[2])
    await rig.conversation(page)
    await ready(page)
    await page.run("document.querySelector('textarea').focus()")
    await page.send("Input.insertText", text="hello")
    await key(page, "Enter", 13, "\r")
    await page.sees("Shall I add it?", "article.agent-message")
    await idle(page)
    await page.sees("The backups run", "[aria-live=polite]")
    await page.run("document.activeElement.blur()")
    seen: list[str] = []
    for _ in range(24):
        await key(page, "Tab", 9)
        focused = await page.run(
            "[document.activeElement.getAttribute('aria-label') || document.activeElement.innerText || '',"
            " getComputedStyle(document.activeElement).outlineStyle]"
        )
        seen.append(focused[0].strip().split("\n")[0])
    assert {"Skip to content", "Lodger", "Status", "Main conversation", "Options", "Message"} <= set(seen), seen


async def key(page: Page, name: str, code: int, text: str = "") -> None:
    more = {"text": text} if text else {}
    await page.send("Input.dispatchKeyEvent", type="keyDown", key=name, windowsVirtualKeyCode=code, **more)
    await page.send("Input.dispatchKeyEvent", type="keyUp", key=name, windowsVirtualKeyCode=code)
