"""Lists of agents and conversations: kept in order by a person, and telling what waits where."""

import json

import pytest

from support.browser import Browser, Page
from support.page_rig import PageRig, idle, ready, say
from support.program_client import Client, local_client, open_conversation, script

pytestmark = pytest.mark.timeout(240)

WIDE = (1440, 900)


async def test_conversations_are_named_put_away_and_deleted(rig: PageRig, browser: Browser) -> None:
    page = await rig.paired(browser, "phone")
    await rig.conversation(page)
    await say(page, "hello " + script({"text": "hello to you"}))
    await page.sees("hello to you", "article.agent-message")
    await idle(page)
    await page.press("Conversations")
    await page.sees("just now", ".row")
    for name in ("Boat", "Garden"):
        await page.press("New conversation")
        await page.until("location.hash.includes('/c/conv-')", "a new conversation is open")
        await ready(page)
        await page.press("Conversations")
        await rename(page, "Conversation", name)
    await page.press("Garden", ".row .clip")
    await page.sees("Garden", ".head-title")
    await page.press("Conversations")

    await page.press("More about Boat")
    await page.press("Archive")
    await page.sees("Archived conversations (1)")
    assert "Boat" not in await page.text(".rows")
    await page.press("Archived conversations (1)", "summary .clip")
    await page.press("Bring back Boat")
    await page.sees("Boat", ".rows")
    await page.gone("Archived conversations")

    await page.press("More about Garden")
    await page.press("Delete")
    await page.sees("What was said in it stays in this machine's database")
    await page.until("document.activeElement.innerText === 'Keep it'", "the keyboard's place is not lost")
    await page.press("Keep it")
    await page.until("document.activeElement.innerText === 'Delete'", "and it comes back")
    await page.press("Delete")
    await page.press("Really delete")
    await page.gone("Garden")
    await page.reload()
    await page.sees("Boat", ".rows")
    assert "Garden" not in await page.text()
    async with local_client(rig.home.socket) as client:
        assert await titles(client) == [None, "Boat"]
    await page.press("More about Main conversation")
    assert "Delete" not in await page.text(".manage"), "the main conversation stays"
    assert page.faults == []


async def test_agents_are_named_put_away_and_deleted(rig: PageRig, browser: Browser) -> None:
    page = await rig.paired(browser, "phone")
    await rig.conversation(page)
    await page.press("Conversations")
    await rename(page, "Lodger", "Ada")
    await page.sees("Ada", "h2")
    await page.press("New agent")
    await page.type("#new-agent", "Ben")
    await page.press("Make it")
    await ready(page)
    await page.sees("Ben", "h1")
    await page.press("Conversations")
    await page.press("More about Ben")
    await page.press("Archive")
    await page.sees("Archived agents (1)")
    await page.press("Archived agents (1)", "summary .clip")
    await page.press("Bring back Ben")
    await page.gone("Archived agents")
    await page.press("More about Ben")
    await page.press("Delete")
    await page.sees("Ben and all its conversations leave every list, for good.")
    await page.press("Really delete")
    await page.gone("Ben")
    async with local_client(rig.home.socket) as client:
        listed = await client.request({"type": "agent_list"})
        assert [agent["name"] for agent in listed["agents"]] == ["Ada"]


async def test_an_agent_at_work_is_not_deleted(rig: PageRig, browser: Browser) -> None:
    page = await rig.paired(browser, "phone")
    await rig.conversation(page)
    await say(page, script({"numbered": 400, "delay_ms": 200}))
    await page.sees("w3 ")
    await page.press("Conversations")
    await page.sees("working", ".row")
    await page.press("More about Lodger")
    await page.press("Delete")
    await page.press("Really delete")
    await page.sees("Stop its turns", ".manage")


async def rename(page: Page, what: str, name: str) -> None:
    await page.press(f"More about {what}")
    await page.until("!!document.querySelector('.manage input')", "the panel is open")
    await page.type(".manage input", name, instead=True)
    await page.press("Rename")
    await page.until("!document.querySelector('.manage')", "the machine has taken it")
    await page.until(
        "!!document.activeElement.getAttribute('aria-label')?.startsWith('More about')", "the focus is back"
    )
    await page.sees(name)


async def titles(client: Client) -> list[str | None]:
    agent = (await client.request({"type": "agent_list"}))["agents"][0]["id"]
    listed = await client.request({"type": "conversation_list", "query": {"agent_id": agent}})
    return sorted((one["summary"] for one in listed["conversations"]), key=lambda title: title or "")


async def test_a_question_elsewhere_leads_to_where_it_is_asked(rig: PageRig, browser: Browser) -> None:
    page = await rig.paired(browser, "phone")
    await rig.conversation(page)
    async with local_client(rig.home.socket) as client:
        other = await open_conversation(client, new=True)
        body = {"agent_id": other.runtime["agent_id"], "summary": "Backups"}
        command = {"type": "conversation_update", "conversation_id": other.runtime["conversation_id"], "body": body}
        assert (await client.request(command))["success"]
        path = rig.world.workspace(rig.world.base / "elsewhere") / "x.txt"
        write = {"name": "Write", "arguments": {"file_path": str(path), "content": "x\n"}}
        await other.say(script({"calls": [write]}, {"text": "written"}))
        await other.question()
        await page.sees("Lodger asks in “Backups”", ".elsewhere")
        await page.press("Conversations")
        await page.until(
            "[...document.querySelectorAll('.row')].some((row) => row.innerText.includes('Backups')"
            " && row.querySelector('.badge.asks')?.innerText === 'asks you')",
            "the conversation bears its badge",
        )
        await page.press("Main conversation", ".row .clip")
        await ready(page)
        await page.press("Lodger asks in “Backups”", ".elsewhere .clip")
        await page.sees("May the agent use Write?", ".question")
        assert not await page.run("!!document.querySelector('.elsewhere')"), "here it is not elsewhere"
        await page.press("Deny")
        await other.finished()
    await page.sees("written", "article.agent-message")


async def test_a_wide_screen_shows_the_list_beside_the_chat(rig: PageRig, browser: Browser) -> None:
    page = await rig.paired(browser, "laptop", WIDE)
    await rig.conversation(page)
    await say(page, "hello " + script({"text": "in the first"}))
    await page.sees("in the first", "article.agent-message")
    await idle(page)
    await page.press("New conversation")
    await page.until("location.hash.includes('/c/conv-')", "a new conversation is open")
    await ready(page)
    await page.gone("in the first", "main")
    boxes = await page.run(
        "['.side', 'main.transcript'].map((one) => document.querySelector(one).getBoundingClientRect())"
        ".map(({left, right, top, bottom}) => [left, right, top < innerHeight, bottom > 0])"
    )
    assert boxes[0][1] <= boxes[1][0], "side by side"
    assert await page.run("document.querySelector('.side [aria-current=page]').innerText") == "Conversation\njust now"
    await page.press("Main conversation", ".side .clip")
    await page.sees("in the first", "article.agent-message")

    await page.type("textarea", "half a thought")
    await page.run("document.querySelector('textarea').marked = true")
    await page.resize(768, 1024)
    await page.until("!document.querySelector('.side')", "a narrow screen shows one thing")
    assert await page.run("document.querySelector('textarea').marked"), "turning a tablet begins nothing anew"
    await page.resize(*WIDE)
    await page.until("!!document.querySelector('.side')", "and back")
    assert await page.run("document.querySelector('textarea').value") == "half a thought"
    assert page.faults == []


async def test_a_page_in_the_background_notifies(rig: PageRig, browser: Browser) -> None:
    page = await rig.paired(browser, "laptop", WIDE)
    await browser.send(
        "Browser.grantPermissions", permissions=["notifications"], origin=rig.url, browserContextId=page.context
    )
    await page.press("Settings")
    await page.press("Tell me about answers and questions while this page is open in the background", "label.check")
    await page.until("document.querySelector('.check input').checked", "notifications are on")
    await rig.conversation(page)
    path = rig.world.workspace(rig.world.base / "elsewhere") / "x.txt"
    write = {"name": "Write", "arguments": {"file_path": str(path), "content": "x\n"}}
    await say(page, script({"text": "first answer"}))
    await page.sees("first answer", "article.agent-message")
    await idle(page)
    await page.sees("first answer", "[aria-live=polite]")
    # One more, shown after whatever the page has shown by now.
    await page.run(
        "navigator.serviceWorker.getRegistration().then((one) => one.showNotification('last', {tag: 'last'}))"
    )
    assert await shown(page) == ["last | "], "nobody is told what they see"
    await page.run(
        "navigator.serviceWorker.getRegistration().then((one) => one.getNotifications())"
        ".then((all) => all.forEach((one) => one.close()))"
    )
    await page.hide()
    async with local_client(rig.home.socket) as client:
        here = await open_conversation(client)
        await here.say(script({"calls": [write]}, {"text": "second answer"}))
        question = await here.question()
        asks = ["Lodger asks", "May the agent use Write?"]
        await page.until(f"{SHOWN}.then((all) => all.includes({json.dumps(' | '.join(asks))}))", "the question is told")
        await here.answer(question, "deny", "not now")
        await here.finished()
        await page.until(f"{SHOWN}.then((all) => all.includes('Lodger | second answer'))", "the end is told")
        other = await open_conversation(client, new=True)
        await other.say(script({"calls": [write]}, {"text": "third answer"}))
        await other.question()
        elsewhere = "Lodger asks | Conversation: a question waits (Write)."
        await page.until(f"{SHOWN}.then((all) => all.includes({json.dumps(elsewhere)}))", "one elsewhere too", 90)
    places = await page.run(
        "navigator.serviceWorker.getRegistration().then((one) => one.getNotifications())"
        ".then((all) => all.map((one) => one.data.path))"
    )
    assert all(place.startswith("#/m/") for place in places)
    assert any(place.endswith(other.runtime["conversation_id"]) for place in places)


SHOWN = (
    "navigator.serviceWorker.getRegistration().then((one) => one.getNotifications())"
    ".then((all) => all.map((one) => `${one.title} | ${one.body}`))"
)


async def shown(page: Page) -> list[str]:
    told: list[str] = await page.run(SHOWN)
    return told
