"""What was said is found by its words and brought to the device as a file, on the page of a real hub and daemon."""

import asyncio
import json
from pathlib import Path

import pytest

from support.browser import Browser, Page
from support.page_rig import PageRig, idle, ready, say
from support.program_client import script
from support.programs import until

pytestmark = pytest.mark.timeout(240)


async def test_words_are_found_and_a_conversation_is_exported(rig: PageRig, browser: Browser, tmp_path: Path) -> None:
    page = await rig.paired(browser, "phone")
    await rig.conversation(page)
    await say(page, "Where is the red lighthouse? " + script({"text": "Beside the harbour."}))
    await page.sees("Beside the harbour.", "article.agent-message")
    await idle(page)
    await page.press("Conversations")
    await words_lead_to_their_conversation(page)
    await page.press("Conversations")
    await a_file_arrives(page, tmp_path)
    assert page.faults == []


async def words_lead_to_their_conversation(page: Page) -> None:
    await page.press("Search")
    await page.type("#query", "nightingale")
    await page.press("Find")
    await page.sees("Nothing was said with “nightingale” in it.")
    await page.type("#query", "-", instead=True)
    await page.press("Find")
    await page.until("!!document.querySelector('.trouble')", "what cannot be looked for is said")
    await page.type("#query", '"red lighthouse"', instead=True)
    await page.press("Find")
    await page.sees("You in Main conversation", ".hit")
    await page.sees("red lighthouse", ".hit .snippet")
    assert await page.run("!document.querySelector('.trouble')")
    await page.run("document.querySelector('.hit').click()")
    await ready(page)
    await page.sees("Beside the harbour.", "article.agent-message")


async def a_file_arrives(page: Page, folder: Path) -> None:
    await page.browser.send(
        "Browser.setDownloadBehavior", behavior="allow", browserContextId=page.context, downloadPath=str(folder)
    )
    await page.press("More about Main conversation")
    await page.press("Export Main conversation")
    file = folder / "Main-conversation.jsonl"
    await until(file.exists, "the file is there")
    text = await asyncio.to_thread(file.read_text)
    lines = [json.loads(line) for line in text.splitlines()]
    assert (lines[0]["type"], lines[-1]["type"]) == ("lodger_export", "end")
    # All that the daemon has of it, and no more than once.
    said = [line["content"] for line in lines if line["type"] == "message"]
    assert lines[-1]["messages"] == len(said) == 2
    assert "red lighthouse" in json.dumps(said[0])
    assert "Beside the harbour." in json.dumps(said[1])
