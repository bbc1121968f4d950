"""Lines of standard input, from everything a shell may put there."""

import asyncio
import os
from pathlib import Path

import pytest

from lodger_cli import lines as lines_module
from lodger_cli.lines import Lines


async def all_of(lines: Lines) -> list[str]:
    found = []
    while line := await lines.next():
        found.append(line)
    return found


async def test_a_pipe_gives_lines_as_they_come() -> None:
    reading, writing = os.pipe()
    lines = Lines(reading)
    waiting = asyncio.create_task(lines.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    os.write(writing, "grüß\nzwei\nlast".encode())
    assert await waiting == "grüß\n"
    os.close(writing)
    assert await all_of(lines) == ["zwei\n", "last"]
    os.close(reading)


async def test_a_file_and_nothing_at_all(tmp_path: Path) -> None:
    (tmp_path / "input").write_text("one\n\ntwo\n")
    for path, expected in ((tmp_path / "input", ["one\n", "\n", "two\n"]), (Path("/dev/null"), [])):
        descriptor = os.open(path, os.O_RDONLY)
        assert await all_of(Lines(descriptor)) == expected
        os.close(descriptor)
    assert await all_of(Lines(descriptor)) == []


async def test_a_wait_can_be_cancelled_and_taken_up_again() -> None:
    reading, writing = os.pipe()
    lines = Lines(reading)
    waiting = asyncio.create_task(lines.next())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    os.write(writing, b"here\n")
    assert await lines.next() == "here\n"
    os.close(reading)
    os.close(writing)


async def test_a_line_beyond_the_limit_comes_in_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(lines_module, "LINE_LIMIT_BYTES", 8)
    monkeypatch.setattr(lines_module, "_PIECE_BYTES", 4)
    (tmp_path / "input").write_text("0123456789\n")
    descriptor = os.open(tmp_path / "input", os.O_RDONLY)
    assert await all_of(Lines(descriptor)) == ["01234567", "89\n"]
    os.close(descriptor)
