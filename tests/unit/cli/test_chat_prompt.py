"""Keys of a chat while something is written above the line that is being typed."""

import asyncio
import os
import pty
import sys
import termios
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session, run_in_terminal
from prompt_toolkit.output import DummyOutput

from lodger_cli.chat_prompt import ChatPrompt, keys_as_pressed
from support.hub_rig import until


@pytest.mark.parametrize("reads", ["a message", "an answer"])
async def test_what_is_pressed_while_something_is_written_stays_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: str
) -> None:
    """Did the terminal read in lines for that moment, it would keep a Ctrl-D to itself, and nobody would leave."""
    person, terminal = pty.openpty()
    with os.fdopen(terminal) as stdin, create_app_session(output=DummyOutput()) as session:
        monkeypatch.setattr(sys, "stdin", stdin)
        prompt = ChatPrompt(tmp_path / "history")
        with keys_as_pressed():
            typing = asyncio.create_task(prompt.message() if reads == "a message" else prompt.answer("? "))
            await until(lambda: session.app is not None and session.app.is_running, "the line is there")
            modes = []

            def written() -> None:
                modes.append(termios.tcgetattr(terminal)[3])
                os.write(person, b"\x04")

            await run_in_terminal(written)
            assert await asyncio.wait_for(typing, 20) == (None if reads == "a message" else "")
            assert [mode & termios.ICANON for mode in modes] == [0]
    os.close(person)
