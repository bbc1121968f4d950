"""A running Lodger for replays: the model of the recordings, an app-server, a workspace and the person's settings."""

import asyncio
import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect

from support.programs import LODGER, Home, World, new_world
from support.replay_cleaned import RECORDED_WORKSPACE
from support.replay_compare import differences
from support.replay_expected import FLOATING, PRELUDES, expected
from support.replay_normal import named
from support.replay_player import NotSeen, Player
from support.replay_recording import Frame, Kind, Line
from support.sandbox_users import own, user_of_boxes

MODEL = Path(__file__).with_name("replay_model.py")
SEEN_LIMIT_S = 30.0
"""For one frame: reached only when it does not come at all."""

RECORDED_AGENT = "agent-local-b1367903-c843-4625-baec-e31c713f37e5"
NEW_AGENT = {"name": "capture-agent", "model": "openai-compatible/stub-model", "description": "fixture agent"}

SETTINGS = """
[machine]
workspace = "{workspace}"

[permissions]
ask_every_command = {ask}

[providers.openai-compatible]
base_url = "{model}/v1"
models = ["stub-model"]
context_window = 128000
"""


class Different(AssertionError):
    """A replay went otherwise than its recording and the known differences say."""


@dataclass(frozen=True, slots=True)
class Place:
    home: Home
    model: str
    first_line: dict[str, Any]
    """What the server printed first."""

    @property
    def url(self) -> str:
        return str(self.first_line["url"])

    async def replay(self, name: str) -> None:
        """Raises: Different."""
        lines = expected(name)
        player = Player(self.url, str(self.home.workspace), RECORDED_WORKSPACE, self._leave, SEEN_LIMIT_S)
        if not any("create_agent" in line.frame for line in lines) and name not in PRELUDES:
            player.known[RECORDED_AGENT] = await self._new_agent()
        if name in PRELUDES:
            await player.play(expected(PRELUDES[name]))
        try:
            await player.play(lines)
        except NotSeen as fault:
            told = compare(lines, {name: peer.frames for name, peer in player.peers.items()})
            raise Different("\n".join([f"not seen: {fault}", *told])) from None
        told = compare(lines, {name: peer.frames for name, peer in player.peers.items()})
        if told:
            raise Different("\n".join(told))

    async def _new_agent(self) -> str:
        async with connect(self.url, proxy=None) as client:
            await client.send(json.dumps({"type": "agent_create", "request_id": "a", "body": NEW_AGENT}))
            return str(json.loads(await client.recv())["agent"]["id"])

    async def _leave(self, pieces: int) -> None:
        body = json.dumps({"pieces": pieces}).encode()

        def ask() -> None:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(urllib.request.Request(f"{self.model}/leave", body, method="POST"), timeout=10) as answer:
                answer.read()

        await asyncio.to_thread(ask)


def compare(lines: list[Line], seen: dict[str, list[Frame]]) -> list[str]:
    """What is different on each connection; both sides clean."""
    told: list[str] = []
    for connection in dict.fromkeys(line.connection for line in lines):
        wanted = [line.frame for line in lines if line.kind is Kind.RECEIVED and line.connection == connection]
        one, _ = named(_settled(wanted))
        other, _ = named(_settled(seen.get(connection, [])))
        told += [f"{connection} {text}" for text in differences(one, other)]
    return told


def _settled(frames: list[Frame]) -> list[Frame]:
    """Refusals that come while a turn runs have no place in its order: they are compared at the end."""
    floating = [frame for frame in frames if frame.get("error") in FLOATING]
    return [*(frame for frame in frames if frame.get("error") not in FLOATING), *floating]


@contextlib.asynccontextmanager
async def replay_place(*, ask_every_command: bool) -> AsyncIterator[Place]:
    """A server of its own, with that setting of the person's."""
    user = user_of_boxes()
    async with new_world("replay") as world:
        home = world.home("machine")
        argv = [sys.executable, str(MODEL), str(home.workspace)]
        model = await world.start("model", argv, {"LANG": "C.UTF-8"}, stdin=subprocess.PIPE)
        # What the recorded clients found there.
        (home.workspace / "notes").mkdir()
        (home.workspace / "README.md").write_text("A project.\n")
        own(home.workspace, user)
        _write_settings(home, str(model.first["url"]), ask_every_command)
        server = await _start_server(world, home)
        yield Place(home, str(model.first["url"]), server)


async def _start_server(world: World, home: Home) -> dict[str, Any]:
    argv = [*LODGER, "app-server", "--listen", "ws://127.0.0.1:0"]
    return (await world.start("app-server", argv, world.environment(home))).first


def _write_settings(home: Home, model: str, ask: bool) -> None:
    folder = home.lodger / "config"
    folder.mkdir()
    (folder / "settings.toml").write_text(SETTINGS.format(workspace=home.workspace, model=model, ask=str(ask).lower()))
