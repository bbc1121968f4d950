"""What processes this program starts meanwhile, whoever in it starts them.

with started_processes() as started:
    ...
assert git_commands(started) == ["unpack-objects"]
"""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Started = list[tuple[str, ...]]

_lock = threading.Lock()
_listening: list[Started] = []
_hooked = False


@contextmanager
def started_processes() -> Iterator[Started]:
    """The command lines, as they come. An audit hook sees every one, but can never be taken out again: it is put in
    once, and is quiet outside of this."""
    global _hooked
    if not _hooked:
        sys.addaudithook(_hook)
        _hooked = True
    found: Started = []
    with _lock:
        _listening.append(found)
    try:
        yield found
    finally:
        with _lock:
            _listening[:] = [other for other in _listening if other is not found]


def git_commands(started: Started) -> list[str]:
    """The git commands among them, without git's own options; other programs by their name."""
    return [_command(argv) for argv in started]


def _command(argv: Sequence[str]) -> str:
    words = list(argv)
    if words[:2] == ["/bin/sh", "-c"] and "--git-dir=" in " ".join(words):
        # A shell that sets limits and becomes git.
        words = words[4:]
    if words[0].rpartition("/")[2] != "git":
        return words[0]
    rest = iter(words[1:])
    for word in rest:
        if word in {"-c", "-C"}:
            next(rest)
        elif not word.startswith("-"):
            return word
    return "git"


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen" and _listening:
        argv = tuple(str(word) for word in arguments[1])
        with _lock:
            for found in _listening:
                found.append(argv)
    elif event in {"os.fork", "os.posix_spawn", "os.exec"} and _listening:
        with _lock:
            for found in _listening:
                found.append((event,))
