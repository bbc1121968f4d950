"""Waiting for what a turn left running in the background, over a real socket."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, unix_serve

from lodger_cli import runtime as runtime_module
from lodger_cli.runtime import wait_for_background
from lodger_cli.wire import Frame, WireClient
from support.patience import LIMIT_S

RUNTIME: Frame = {"agent_id": "agent-1", "conversation_id": "default"}


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "BACKGROUND_LOOK_S", 0.01)


@asynccontextmanager
async def daemon(folder: Path, *looks: list[str]) -> AsyncIterator[tuple[WireClient, list[Frame]]]:
    """Answers each `sync` with the next list of ids of processes; the last one stays."""
    asked: list[Frame] = []

    async def serve(socket: ServerConnection) -> None:
        async for message in socket:
            frame: dict[str, Any] = json.loads(message)
            running = looks[min(len(asked), len(looks) - 1)]
            asked.append(frame)
            processes = [{"process_id": one, "kind": "bash", "command": f"run {one}"} for one in running]
            for owner in ({**RUNTIME, "conversation_id": "other"}, RUNTIME):
                listed = processes if owner == RUNTIME else [{"process_id": "elsewhere"}]
                status = {
                    "type": "update_device_status",
                    "runtime": owner,
                    "device_status": {"background_processes": listed},
                }
                await socket.send(json.dumps(status))
            await socket.send(json.dumps({"type": "sync_response", "request_id": frame["request_id"], "success": True}))

    async with unix_serve(serve, str(folder / "socket")):
        client = await WireClient.over_socket(folder / "socket")
        try:
            yield client, asked
        finally:
            await client.close()


async def test_it_waits_until_nothing_of_its_own_runs_any_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with daemon(tmp_path, ["old", "a", "b"], ["old", "b"], ["old"]) as (client, asked):
        shown: list[Frame] = []
        async with asyncio.timeout(LIMIT_S):
            await wait_for_background(client, RUNTIME, frozenset({"old"}), shown.append)
    assert len(asked) == 3
    assert len(shown) == 6, "with --json every frame is shown"
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("waiting for background work (run a, run b)") == 1


async def test_what_never_ends_is_named_and_left_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_module, "BACKGROUND_LIMIT_S", 0.05)
    async with daemon(tmp_path, ["server"]) as (client, asked):
        async with asyncio.timeout(LIMIT_S):
            await wait_for_background(client, RUNTIME, frozenset(), None)
    assert len(asked) > 1
    assert "still runs" in capsys.readouterr().err.splitlines()[-1]


async def test_what_ran_before_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with daemon(tmp_path, ["old"]) as (client, asked):
        async with asyncio.timeout(LIMIT_S):
            await wait_for_background(client, RUNTIME, frozenset({"old"}), None)
    assert len(asked) == 1
    assert capsys.readouterr().err == ""
