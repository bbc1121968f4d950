"""journald's record of our services, by `journalctl`."""

import os
import subprocess
from collections.abc import Iterator
from typing import Final

from lodger_cli.log_records import Record, read_journal
from lodger_cli.units.plan import Part, Scope
from lodger_cli.units.systemd import unit_name

_PIECE_BYTES: Final = 64 * 1024


class JournalAway(Exception):
    """The journal cannot be read; the text says why."""


class Journal:
    """One scope's journal of some parts. Blocking. Raises: JournalAway, from every method."""

    def __init__(self, scope: Scope, parts: list[Part]) -> None:
        self._parts = {unit_name(part): part.value for part in parts}
        option = "--user-unit" if scope is Scope.USER else "--unit"
        self.command = ["journalctl", "--no-pager", *(f"{option}={unit}" for unit in self._parts)]
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def last(self, count: int) -> list[Record]:
        """So many records at the most, oldest first."""
        with self._start(subprocess.PIPE, f"--lines={count}") as process:
            out, err = process.communicate()
        if process.returncode != 0:
            raise JournalAway(err.decode("utf-8", "replace").strip() or f"journalctl ended with {process.returncode}")
        return list(self._records(out.split(b"\n")))

    def follow(self, count: int) -> None:
        """From so many records before now on; `news` tells them."""
        self._process = self._start(None, f"--lines={count}", "--follow")
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def news(self) -> Iterator[Record]:
        """What has come since; at once."""
        assert self._process is not None and self._process.stdout is not None
        while data := _read_now(self._process.stdout.fileno()):
            *lines, self._rest = (self._rest + data).split(b"\n")
            yield from self._records(lines)
        if self._process.poll() is not None:
            raise JournalAway(f"journalctl ended with {self._process.returncode}")

    def close(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate()

    def _start(self, errors: int | None, *arguments: str) -> "subprocess.Popen[bytes]":
        try:
            return subprocess.Popen(
                [*self.command, "--quiet", "--output=json", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        except OSError as error:
            raise JournalAway(f"journalctl cannot be started: {error}") from error

    def _records(self, lines: list[bytes]) -> Iterator[Record]:
        for line in lines:
            if record := read_journal(line.decode("utf-8", "replace"), self._parts):
                yield record


def _read_now(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _PIECE_BYTES)
    except BlockingIOError:
        return b""
