"""The line a person types in `lodger chat`: history, pasted lines, wide characters; text above it may appear meanwhile.

Loaded in a terminal only: the library behind it costs a tenth of a second.
"""

import os
import sys
import termios
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.utils import is_dumb_terminal

from lodger_cli.terminal import coloured


class Left(Exception):
    """The person pressed Ctrl-C."""


class _KeysAsPressed(Vt100Input):
    """Also while something is written above the line that is being typed, for which the library would have the terminal
    read in lines: what is pressed at that moment comes afterwards, and Ctrl-D does not stay with the terminal."""

    def cooked_mode(self) -> AbstractContextManager[None]:
        return nullcontext()


class ChatPrompt:
    """Reads one thing at a time. Cancelling a read keeps what was typed for the next."""

    def __init__(self, history: Path) -> None:
        depth = None if coloured(sys.stdout) else ColorDepth.MONOCHROME
        keys = _KeysAsPressed(sys.stdin)
        self._session: PromptSession[str] = PromptSession(
            history=_history(history),
            multiline=True,
            key_bindings=_keys(),
            prompt_continuation="  ",
            color_depth=depth,
            input=keys,
        )
        self._answers: PromptSession[str] = PromptSession(history=InMemoryHistory(), color_depth=depth, input=keys)
        self._draft = ""

    async def message(self) -> str | None:
        """What the person sends; None at the end of input. Raises: Left."""
        draft, self._draft = self._draft, ""
        try:
            return await self._session.prompt_async("> ", default=draft)
        except EOFError:
            return None
        except KeyboardInterrupt:
            raise Left from None
        except BaseException:
            self._draft = self._session.default_buffer.text
            raise

    async def answer(self, prompt: str) -> str:
        """One line; empty at the end of input, a line end at least otherwise. Raises: Left."""
        try:
            return f"{await self._answers.prompt_async(prompt)}\n"
        except EOFError:
            return ""
        except KeyboardInterrupt:
            raise Left from None


@contextmanager
def keys_as_pressed() -> Iterator[None]:
    """Keys pressed between two prompts wait for the next as they are: read in lines, the terminal would keep Ctrl-D to
    itself, and show the others twice. Ctrl-C interrupts as ever."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    iflag, oflag, cflag, lflag, *rest = before
    iflag &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR)
    lflag &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(terminal, termios.TCSADRAIN, [iflag, oflag, cflag, lflag, *rest])
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextmanager
def above_the_prompt() -> Iterator[None]:
    """What is written meanwhile appears above the line that is being typed, where the terminal can do that."""
    if is_dumb_terminal():
        yield
        return
    with patch_stdout(raw=True):
        yield


def _history(path: Path) -> FileHistory | InMemoryHistory:
    """What was typed before, readable by its owner only; forgotten at the end where it cannot be kept."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def _keys() -> KeyBindings:
    """Enter sends; Alt-Enter makes a new line, and so do the line ends of what is pasted."""
    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
