"""`lodger_ports` and those below: Lodger's own commands about ports of boxes.

    lodger_ports                       answers `ports`, one object each
    lodger_ports_open   port           answers `local_port`
    lodger_ports_share  port           answers `share`, the name by which the hub lets people in
    lodger_ports_close  port           the port here or the one in the box

Where several boxes have the port, `workspace` or `agent_id` says which is meant.
"""

from lodger_daemon.ports.core.offers import LAST_PORT, is_port
from lodger_daemon.ports.forward import LOOPBACK
from lodger_daemon.ports.ports import ListedPort, NotOpened, Ports
from lodger_daemon.ports.sharing import HubShares
from lodger_daemon.turns.contract import ConversationError
from lodger_tools.json_value import Json, JsonObject


class PortCommands:
    def __init__(self, ports: Ports, shares: HubShares) -> None:
        self._ports = ports
        self._shares = shares

    async def show(self, command: JsonObject) -> JsonObject:
        del command
        return {"ports": await self.section()}

    async def section(self) -> Json:
        """For `lodger status` too."""
        return [{**facts(one), "shared": self._shares.is_shared(one.box, one.number)} for one in self._ports.listed()]

    async def open(self, command: JsonObject) -> JsonObject:
        """Raises: ConversationError."""
        number = _number(command)
        found = self._one([one for one in self._matching(command) if one.number == number], number)
        try:
            local_port = await self._ports.open(found.box, number)
        except NotOpened as error:
            raise ConversationError(str(error)) from error
        return {"local_port": local_port, "url": f"http://{LOOPBACK}:{local_port}"}

    async def share(self, command: JsonObject) -> JsonObject:
        """Raises: ConversationError."""
        number = _number(command)
        found = self._one([one for one in self._matching(command) if one.number == number], number)
        try:
            return {"share": await self._shares.share(found.box, number)}
        except NotOpened as error:
            raise ConversationError(str(error)) from error

    async def close(self, command: JsonObject) -> JsonObject:
        """Raises: ConversationError."""
        number, matching = _number(command), self._matching(command)
        local = [one for one in matching if one.local_port == number]
        found = self._one(local or [one for one in matching if one.number == number], number)
        try:
            await self._ports.close(found.box, found.number)
        except NotOpened as error:
            raise ConversationError(str(error)) from error
        return {"port": found.number, "workspace": found.key.workspace}

    def _matching(self, command: JsonObject) -> list[ListedPort]:
        agent_id, workspace = command.get("agent_id"), command.get("workspace")
        return [
            one
            for one in self._ports.listed()
            if agent_id in (None, one.key.agent_id) and workspace in (None, one.key.workspace)
        ]

    def _one(self, found: list[ListedPort], number: int) -> ListedPort:
        if not found:
            raise ConversationError(f"No box that runs here listens at {number}; `lodger ports list` lists what does.")
        if len(found) > 1:
            where = ", ".join(f"{one.key.workspace} of {one.key.agent_id}" for one in found)
            raise ConversationError(f"Several boxes have port {number}; say which folder: {where}.")
        return found[0]


def facts(one: ListedPort) -> JsonObject:
    return {
        "port": one.number,
        "state": one.port.state.value,
        "since": one.port.since,
        "listens": one.port.listens,
        "agent_id": one.key.agent_id,
        "workspace": one.key.workspace,
        "local_port": one.local_port,
        "url": None if one.local_port is None else f"http://{LOOPBACK}:{one.local_port}",
        "connections": one.connections,
    }


def _number(command: JsonObject) -> int:
    number = command.get("port")
    if not is_port(number):
        raise ConversationError(f"Name the port as a number from 1 to {LAST_PORT}.")
    return number
