"""The service manager's end of sd_notify, owned by a test."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from support.programs import until


@dataclass
class NotifySocket:
    """Collects every message with the instant it came at."""

    address: str
    """As it stands in NOTIFY_SOCKET."""
    listener: socket.socket
    heard: list[tuple[float, list[str]]] = field(default_factory=list)

    @classmethod
    def at(cls, address: Path | str) -> Self:
        """A path, or `@` and an abstract name. Needs a running loop."""
        name = str(address)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.setblocking(False)
        listener.bind(f"\0{name[1:]}" if name.startswith("@") else name)
        made = cls(name, listener)
        asyncio.get_running_loop().add_reader(listener, made._take)
        return made

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.listener)
        self.listener.close()

    @property
    def words(self) -> list[str]:
        """Every assignment so far, in order."""
        return [word for _, message in self.heard for word in message]

    def count(self, word: str) -> int:
        return self.words.count(word)

    def feeds(self) -> list[float]:
        """The instants at which the watchdog was fed."""
        return [at for at, message in self.heard if "WATCHDOG=1" in message]

    async def word(self, word: str, times: int = 1) -> None:
        await until(lambda: self.count(word) >= times, f"{word} comes {times} times; heard: {self.words[-10:]}")

    async def status(self, wanted: Callable[[str], bool]) -> str:
        """The first status line from now on, or the newest so far, that is wanted."""

        def newest() -> str:
            lines = [word.removeprefix("STATUS=") for word in self.words if word.startswith("STATUS=")]
            return lines[-1] if lines and wanted(lines[-1]) else ""

        return str(await until(newest, f"a status line; heard: {self.words[-10:]}"))

    def take_all(self) -> None:
        """Also what has been sent and not been looked at."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._take()

    def _take(self) -> None:
        message = self.listener.recv(65536).decode()
        self.heard.append((asyncio.get_running_loop().time(), message.split("\n")))
