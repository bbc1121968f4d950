"""A client of the router without a transport: sends commands as bytes, keeps every frame it is sent."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lodger_daemon.clients.connection import ClientConnection
from lodger_daemon.clients.external_tools import ExternalToolRegistry
from lodger_daemon.clients.router import Router
from lodger_daemon.clients.services import ClientServices, MemoryAnswering, PlaceAnswering, WorkplaceFacts
from lodger_daemon.identity import AgentId
from lodger_daemon.randomness import SeededRng
from lodger_daemon.turns.contract import ConversationService
from support.patience import LIMIT_S
from support.turn_parts import House

Frame = dict[str, Any]


@dataclass
class Facts:
    connection_name: str = "workstation"
    version: str = "1.2.3"
    boot_working_directory: str = "/boot"
    reloads: int = 0

    def memory_directory(self, agent_id: AgentId) -> str | None:
        return f"/memory/{agent_id}"

    async def reload(self) -> str:
        self.reloads += 1
        return "Settings read again"


@dataclass
class WireClient:
    frames: list[Frame] = field(default_factory=list)
    was_cut: bool = False
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    connection: ClientConnection = field(init=False)
    sends: list[int] = field(default_factory=list)
    """How many frames came together, each time."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, frames: list[bytes]) -> None:
        self.sends.append(len(frames))
        for frame in frames:
            await self.gate.wait()
            self.frames.append(json.loads(frame))
            self._changed.set()

    def cut(self) -> None:
        self.was_cut = True
        self._changed.set()

    async def say(self, frame: Frame) -> None:
        await self.connection.receive(json.dumps(frame).encode())

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def ask(self, frame: Frame) -> Frame:
        """Send a command and return its response."""
        await self.say(frame)
        expected = "input_accepted" if frame["type"] == "input" else f"{frame['type']}_response"

        def answers() -> list[Frame]:
            return [one for one in self.frames if one["type"] == expected and one["request_id"] == frame["request_id"]]

        await self.until(lambda: bool(answers()))
        return answers()[0]

    def of(self, frame_type: str) -> list[Frame]:
        return [frame for frame in self.frames if frame["type"] == frame_type]

    def deltas(self, message_type: str) -> list[Frame]:
        return [frame["delta"] for frame in self.of("stream_delta") if frame["delta"]["message_type"] == message_type]

    def outline(self) -> list[str]:
        """The order of frames in short words."""
        return [_word(frame) for frame in self.frames]

    def forget(self) -> None:
        self.frames.clear()


def _word(frame: Frame) -> str:
    match frame["type"]:
        case "stream_delta":
            return str(frame["delta"]["message_type"])
        case "update_loop_status":
            return str(frame["loop_status"]["status"])
        case "update_device_status":
            status = frame["device_status"]
            return f"device {'busy' if status['is_processing'] else 'idle'} {len(status['pending_control_requests'])}"
        case other:
            return str(other)


class WireHouse:
    """Real turns over a real database behind a real router."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.facts = Facts()
        self.tools = ExternalToolRegistry(SeededRng(7), call_limit_s=2.0)
        house.external = self.tools  # type: ignore[assignment]  # it implements the same contract

    def serve(
        self,
        conversations: ConversationService | None = None,
        *,
        memory: MemoryAnswering | None = None,
        places: PlaceAnswering | None = None,
        workplaces: WorkplaceFacts | None = None,
    ) -> None:
        self.router = Router(
            ClientServices(
                conversations=conversations or self.house.conversations,
                models=self.house.models,
                facts=self.facts,
                external_tools=self.tools,
                clock=self.house.clock,
                rng=SeededRng(11),
                memory=memory,
                places=places,
                workplaces=workplaces,
            )
        )

    def client(self, *, local: bool = True, open_gate: bool = True) -> WireClient:
        client = WireClient()
        if open_gate:
            client.gate.set()
        client.connection = self.router.open(client.take, "app-server", local=local, cut=client.cut)
        return client
