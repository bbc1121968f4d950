"""A development server in a box, from the page: seen, opened, visited on an origin of its own, and closed."""

import pytest

from support.browser import Browser
from support.page_rig import PageRig, idle, say
from support.port_room import server_port
from support.program_client import script

pytestmark = pytest.mark.timeout(240)

HOSTILE = """<!doctype html><title>app</title><p>from the box</p><script>
let opener = String(window.opener), kept = JSON.stringify(localStorage), cookies = document.cookie;
document.body.append(` opener ${opener} kept ${kept} cookies [${cookies}]`);
fetch("/whoami").then((answer) => document.body.append(` own ${answer.status}`));
navigator.serviceWorker.register("/worker.js")
  .then(() => document.body.append(" worker kept"), (error) => document.body.append(` worker ${error.name}`));
</script>"""


async def test_a_server_is_opened_visited_and_closed(rig: PageRig, browser: Browser) -> None:
    port = server_port()
    workspace = rig.home.lodger / "workspace"
    (workspace / "index.html").write_text(HOSTILE)
    (workspace / "whoami").write_text("app")
    (workspace / "worker.js").write_text("addEventListener('fetch', () => {})")
    page = await rig.paired(browser, "phone")
    await rig.conversation(page)
    serve = {
        "name": "Bash",
        "arguments": {"command": f"exec python3 -m http.server {port}", "run_in_background": True},
    }
    wait = {"name": "Bash", "arguments": {"command": "until [ -e go ]; do sleep 0.05; done"}}
    await say(page, "serve " + script({"calls": [serve]}, {"calls": [wait]}, {"text": "it is served"}))
    await page.sees(f"listens at port {port}")
    assert await page.text(".question h2") == f"May the machine reach port {port} of the agent's box?"
    shown = await page.run("[...document.querySelectorAll('.question .hosts div > *')].map((one) => one.innerText)")
    assert shown == [f"port {port}", f"in {workspace}"]
    await page.press("Deny")
    (workspace / "go").touch()
    await page.sees("it is served", "article.agent-message")
    await idle(page)

    await page.press("Conversations")
    await page.press("Status")
    await page.sees(f"{port} in {workspace}")
    await page.press(f"Open port {port}")
    await page.sees("opened just now")
    await page.press(f"Go to port {port}")
    tab = await page.new_tab()
    await tab.sees("from the box")
    await tab.sees("own 200")
    # It sees nothing of the page it came from, and cannot send that elsewhere.
    await tab.sees("opener null kept {} cookies []")
    # Nothing of it stays in the browser to answer for the next program at that port.
    await tab.sees("worker TypeError")
    assert await tab.run("fetch('/worker.js').then((answer) => answer.status)") == 200
    assert await tab.run("location.port") != await page.run("location.port")
    assert await tab.run("location.pathname + location.search") == "/"
    kept = await page.run("JSON.stringify(localStorage)")
    assert "token" in kept, "the control: the page itself keeps one"

    await page.press(f"Close port {port}")
    await page.sees("closed just now")
    await tab.run("fetch('/whoami', {cache: 'no-store'}).catch(() => document.body.append('cut off'))")
    await tab.sees("cut off")
    assert page.faults == []
