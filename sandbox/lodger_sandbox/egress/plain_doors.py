"""For programs that know of no proxy: the box's name server, and the ports they connect to by its answers."""

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Final

from lodger_sandbox.egress.core.dns import NameBook, answer
from lodger_sandbox.egress.core.hosts import Destination
from lodger_sandbox.egress.dialling import NotReached
from lodger_sandbox.egress.doors import Doors, Way, both_ways
from lodger_sandbox.egress.gate import NotAllowed

_QUERY_LIMIT_BYTES: Final = 4096
_QUERIES_AT_ONCE: Final = 64
_IP_PKTINFO: Final = 8
"""Python has it as a name from 3.12 on only; Linux."""


class PlainDoors:
    """One box's name server and listening sockets, made by `inside_sockets`. Event loop only."""

    def __init__(self, name_server: socket.socket, listeners: Sequence[socket.socket], way: Way) -> None:
        self._names = NameBook()
        self._name_server = name_server
        self._doors = [_NamedDoors(listener, way, self._names) for listener in listeners]

    async def open(self) -> None:
        self._name_server.setblocking(False)
        asyncio.get_running_loop().add_reader(self._name_server.fileno(), self._answer)
        for doors in self._doors:
            await doors.open()

    @property
    def busy(self) -> bool:
        return any(doors.busy for doors in self._doors)

    async def aclose(self) -> None:
        asyncio.get_running_loop().remove_reader(self._name_server.fileno())
        self._name_server.close()
        await asyncio.gather(*(doors.aclose() for doors in self._doors))

    def _answer(self) -> None:
        for _ in range(_QUERIES_AT_ONCE):
            try:
                query, ancillary, _, sender = self._name_server.recvmsg(_QUERY_LIMIT_BYTES, 256)
                reply = answer(query, self._names)
                if reply is not None:
                    # From the address that was asked, else no resolver takes it.
                    asked = [(level, kind, data) for level, kind, data in ancillary if kind == _IP_PKTINFO]
                    self._name_server.sendmsg([reply], asked, 0, sender)
            except OSError:
                return


class _NamedDoors(Doors):
    def __init__(self, listener: socket.socket, way: Way, names: NameBook) -> None:
        super().__init__(listener, way)
        self._names = names

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address, port = writer.get_extra_info("sockname")
        name = self._names.name_of(IPv4Address(address))
        if name is None:
            return
        try:
            there = await self._way.to(Destination(name, port))
        except (NotAllowed, NotReached):
            # There is nobody to tell: the program gets an end, the tool's result the reason.
            return
        await both_ways((reader, writer), there)
