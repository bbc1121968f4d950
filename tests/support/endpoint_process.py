"""Starts the scripted model endpoint for a test and asks it what it saw."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.patience import LIMIT_S

_PROGRAM = Path(__file__).with_name("model_endpoint.py")


class EndpointProcess:
    """A running endpoint. Every method blocks for a moment."""

    def __init__(self, url: str) -> None:
        self.url = url

    def requests(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get("/requests")
        return found

    def open_answers(self) -> int:
        return int(self._get("/open"))

    def wait_until(self, condition: Callable[[list[dict[str, Any]]], bool], limit_s: float = LIMIT_S) -> float:
        """Seconds until what it saw satisfies `condition`."""
        start = time.monotonic()
        while not condition(self.requests()):
            if time.monotonic() - start > limit_s:
                raise AssertionError(f"not within {limit_s} s: {[r['state'] for r in self.requests()]}")
            time.sleep(0.005)
        return time.monotonic() - start

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=LIMIT_S) as answer:
            return json.load(answer)


@contextmanager
def model_endpoint(*arguments: str) -> Iterator[EndpointProcess]:
    """One endpoint process, ended with the block."""
    argv = [sys.executable, str(_PROGRAM), *arguments]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdin is not None
    try:
        yield EndpointProcess(json.loads(process.stdout.readline())["url"])
    finally:
        process.stdin.close()
        process.wait(LIMIT_S)
        process.stdout.close()
