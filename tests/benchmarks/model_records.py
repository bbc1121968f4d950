"""The model endpoint seen from the benchmark: its process, its address and what it recorded."""

import asyncio
import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, Self

from benchmarks.model_endpoint import Record


class ModelRecords:
    """Owns the endpoint's process; `close` ends it."""

    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        self._process = process
        self.pid = process.pid
        self.address = f"http://127.0.0.1:{port}"

    @classmethod
    def start(cls) -> Self:
        argv = [sys.executable, str(Path(__file__).with_name("model_endpoint.py"))]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        return cls(process, int(process.stdout.readline()))

    async def of(self, tag: str) -> list[Record]:
        """Every model request of one turn, in the order of their arrival."""
        return await asyncio.to_thread(self._fetch, tag)

    def _fetch(self, tag: str) -> list[Record]:
        with urllib.request.urlopen(f"{self.address}/records?tag={tag}", timeout=10) as reply:
            body: dict[str, Any] = json.load(reply)
        return [Record(**record) for record in body["records"]]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)
