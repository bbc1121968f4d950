"""Scripts that others wrote never run: whatever comes from a model, a tool, a file, a provider, a person's names."""

import json
import urllib.request
from urllib.parse import urlsplit

import pytest

from support.browser import Browser, Page
from support.page_rig import PageRig, idle, say
from support.program_client import bash, local_client, remember, script

pytestmark = pytest.mark.timeout(240)

HOSTILE = "<img src=x onerror=\"window.pwned='{0}';alert('{0}')\"><script>window.pwned='{0}'</script>"


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


async def test_scripts_in_names_of_agents_and_conversations_never_run(rig: PageRig, browser: Browser) -> None:
    async with local_client(rig.home.socket) as client:
        agent, title = HOSTILE.format("agent"), HOSTILE.format("title")
        body = {"create_agent": {"body": {"name": agent}}, "create_conversation": {"body": {"summary": title}}}
        started = await client.request({"type": "runtime_start", **body})
        runtime = started["runtime"]
        command = {"type": "conversation_update", "conversation_id": runtime["conversation_id"]}
        changed = await client.request({**command, "body": {"agent_id": runtime["agent_id"], "summary": title}})
        assert changed["conversation"]["summary"] == title
        for width in (360, 1440):
            page = await rig.paired(browser, "device", (width, 800))
            await page.press(rig.machine_name, ".card-title, .side-machine .clip")
            await page.sees(agent)
            await page.press(f"More about {agent}")
            await page.press(f"More about {title}")
            await only_text_came_of_it(page)
            await page.press(title, ".row .clip")
            await page.sees(title, ".head-title")
            await page.sees(agent, "h1")
            assert title in await page.run("document.title")
            await only_text_came_of_it(page)
            await only_same_hosts(rig, page)
            await page.close()


async def test_scripts_in_a_providers_error_never_run(rig: PageRig, browser: Browser) -> None:
    page = await rig.paired(browser, "phone")
    await rig.conversation(page)
    fault = {"status": 400, "type": "invalid_request_error", "message": HOSTILE.format("provider")}
    await say(page, script({"fault": fault}))
    await page.sees("onerror=", ".note.error")
    await idle(page)
    await only_text_came_of_it(page)
    await only_same_hosts(rig, page)


async def test_scripts_in_a_waiting_message_never_run(rig: PageRig, browser: Browser) -> None:
    page = await rig.paired(browser, "phone")
    await rig.conversation(page)
    await say(page, "slowly " + script({"numbered": 400, "delay_ms": 200}))
    await page.sees("w3 ")
    await say(page, HOSTILE.format("queue"))
    await page.sees("onerror=", ".queue")
    await only_text_came_of_it(page)
    await page.press("Stop")
    await only_same_hosts(rig, page)
