"""Pictures from a phone: made smaller, sent, shown; what cannot be sent is said in words."""

import base64
from pathlib import Path

import pytest

from support.browser import Browser, Page
from support.page_rig import PageRig, idle, ready, say
from support.program_client import script

pytestmark = pytest.mark.timeout(240)


async def test_a_picture_is_made_smaller_and_sent(rig: PageRig, browser: Browser, tmp_path: Path) -> None:
    page = await rig.paired(browser, "phone")
    await rig.conversation(page)
    picture = await drawn(page, tmp_path / "picture.png", 3000, 1500)
    await page.pick("input[type=file]", [picture])
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


async def test_what_cannot_be_sent_is_said_in_words(rig: PageRig, browser: Browser, tmp_path: Path) -> None:
    page = await rig.paired(browser, "phone")
    await rig.conversation(page)
    small = [await drawn(page, tmp_path / f"{number}.png", 30, 20) for number in range(8)]
    notes = tmp_path / "notes.png"
    notes.write_text("no picture at all")
    await page.pick("input[type=file]", [*small, notes])
    await page.until("document.querySelectorAll('.picked img').length === 6", "six of them are taken")
    await page.sees("7.png was left out: one message holds at most 6 pictures", ".composer .trouble")
    await page.sees("notes.png is not a picture this browser can read", ".composer .trouble")
    await page.press("Remove picture 6")
    await page.until("document.querySelectorAll('.picked img').length === 5", "one is taken out")
    await say(page, "five " + script({"text": "five it is"}))
    await page.sees("five it is", "article.agent-message")
    await idle(page)
    await page.until("!document.querySelector('.composer .trouble, .picked')", "the field is empty again")
    assert await page.run("document.querySelectorAll('.user-message img').length") == 5
    # Noise does not compress: a few of these are more than a message may hold.
    large = [await drawn(page, tmp_path / f"noise{number}.png", 1568, 1568, noise=True) for number in range(6)]
    await page.pick("input[type=file]", large)
    await page.sees("the pictures are too large together", ".composer .trouble")
    assert 0 < await page.run("document.querySelectorAll('.picked img').length") < 6


async def drawn(page: Page, path: Path, width: int, height: int, *, noise: bool = False) -> Path:
    """A picture of that size, made by the browser."""
    fill = (
        "const image = c.createImageData(w, h); for (let i = 0; i < image.data.length; i += 1)"
        " image.data[i] = i % 4 === 3 ? 255 : Math.imul(i, 2654435761) >>> 24; c.putImageData(image, 0, 0);"
        if noise
        else "c.fillStyle = 'teal'; c.fillRect(0, 0, w, h);"
    )
    made = await page.run(
        f"(() => {{ const [w, h] = [{width}, {height}]; const canvas = document.createElement('canvas');"
        f" canvas.width = w; canvas.height = h; const c = canvas.getContext('2d'); {fill}"
        " return canvas.toDataURL('image/png').split(',')[1]; })()"
    )
    path.write_bytes(base64.b64decode(made))
    return path
