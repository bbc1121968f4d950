"""Questions about hosts and about git's configuration as a person sees them: in plain words, not as arguments."""

import subprocess

import pytest

from support.browser import Browser
from support.page_rig import PageRig, idle, say
from support.program_client import bash, script
from support.real_boxes import box_user_for_tests
from support.sandbox_users import own

pytestmark = pytest.mark.timeout(240)

FETCH = "curl -sS -m 40 http://shop.example.org:8080/"


async def test_hosts_and_changes_of_git_are_shown_plainly(rig: PageRig, browser: Browser) -> None:
    workspace = rig.home.lodger / "workspace"
    subprocess.run(("git", "init", "-q", str(workspace)), check=True)  # noqa: ASYNC221 - before anything runs
    own(workspace, box_user_for_tests())
    page = await rig.paired(browser, "phone")
    await rig.conversation(page)

    await say(page, script({"calls": [bash(FETCH)]}, {"text": "asked for a host"}))
    await page.sees("May programs of the agent reach shop.example.org?", ".question")
    shown = await page.run("[...document.querySelectorAll('.question .hosts div > *')].map((one) => one.innerText)")
    assert shown == ["shop.example.org", "port 8080"]
    assert "{" not in await page.text(".question")
    await page.press("Deny")
    await page.sees("asked for a host", "article.agent-message:last-of-type")
    await idle(page)

    await say(page, script({"calls": [bash("git config core.hooksPath .husky")]}, {"text": "asked about git"}))
    await page.sees("May the agent's change of git's configuration stand?", ".question")
    assert f"{workspace}/.git/config" in await page.text(".question figcaption")
    lines = await page.run("[...document.querySelectorAll('.question .diff .add')].map((one) => one.innerText.trim())")
    assert lines == ["+core.hookspath = .husky"]
    await page.press("Allow")
    await page.sees("asked about git", "article.agent-message:last-of-type")
    await idle(page)
    config = workspace / ".git" / "config"
    assert ".husky" in config.read_text()
    assert page.faults == []
