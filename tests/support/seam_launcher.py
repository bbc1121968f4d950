"""Runs `lodger ARGUMENTS` with its durable steps wrapped, so that a test can have the process die at a named one.

    LODGER_TEST_SEAMS_FD=N python tests/support/seam_launcher.py daemon …

The product does not know. A *seam* is a step on which a promise rests: a commit, a send, a process started, a file
renamed, a ref moved, a call given to a box, a request given to a model. Each is passed twice, `before` and `after`.
Over the descriptor (a socket, JSON lines) the test says

    {"arm": {"seam": …, "side": …, "nth": 1}}   die by SIGKILL at the nth passage from now; answered by {"armed": true}
    {"count": true}                             answered by {"passages": {"seam|side": n}} since the last time

and reads {"hit": {…}} as the last word of a process that is about to die. LODGER_TEST_SEAMS_ARM arms from the start.
"""

import functools
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

KIND = re.compile(r'"type"\s*:\s*"([a-z_]+)"')


class Seams:
    """Counts passages; kills its own process at the one that is armed."""

    def __init__(self, control: socket.socket | None) -> None:
        self._control = control
        self._lock = threading.Lock()
        self._armed: dict[str, Any] | None = json.loads(os.environ.pop("LODGER_TEST_SEAMS_ARM", "null"))
        self._passages: Counter[str] = Counter()

    def listen(self) -> None:
        assert self._control is not None
        for line in self._control.makefile("r"):
            order = json.loads(line)
            with self._lock:
                if "arm" in order:
                    self._armed = order["arm"]
                    self._say({"armed": True})
                else:
                    self._say({"passages": dict(self._passages)})
                    self._passages.clear()

    def passed(self, side: str, *names: str) -> None:
        with self._lock:
            for name in names:
                self._passages[f"{name}|{side}"] += 1
            armed = self._armed
            if armed is None or armed["side"] != side or armed["seam"] not in names:
                return
            armed["nth"] -= 1
            if armed["nth"] <= 0:
                self._say({"hit": {"seam": armed["seam"], "side": side}})
                os.kill(os.getpid(), signal.SIGKILL)

    def _say(self, value: Any) -> None:
        if self._control is not None:
            self._control.sendall(json.dumps(value).encode() + b"\n")


def wrap_commits(seams: Seams) -> None:
    """Named by whoever wrote in the transaction; the hub's by its own work."""
    written = threading.local()

    def names() -> list[str]:
        found = sorted(set(getattr(written, "by", [])))
        written.by = []
        return [f"commit {name}" for name in found] or ["commit"]

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *rest: Any) -> Any:
            if sql != "COMMIT":
                return super().execute(sql, *rest)
            told = names()
            seams.passed("before", *told)
            done = super().execute(sql, *rest)
            seams.passed("after", *told)
            return done

        def __exit__(self, *fault: Any) -> Any:
            if fault[0] is not None or not self.in_transaction:
                return super().__exit__(*fault)
            seams.passed("before", "commit hub")
            done = super().__exit__(*fault)
            seams.passed("after", "commit hub")
            return done

    plain = sqlite3.connect
    sqlite3.connect = functools.partial(plain, factory=Connection)  # type: ignore[assignment]

    from lodger_daemon.store.writer import Writer

    run_job = Writer._run_job

    def named(self: Any, job: Any) -> None:
        module = job.work.__module__.rsplit(".", 1)[-1]
        function = job.work.__qualname__.replace(".<locals>", "").replace(".<lambda>", "").replace(".write", "")
        written.by = [*getattr(written, "by", []), f"{module}.{function}"]
        run_job(self, job)

    Writer._run_job = named  # type: ignore[method-assign]


def wrap_function(seams: Seams, owner: Any, name: str, names_of: Callable[..., tuple[str, ...]]) -> None:
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        names = names_of(*arguments, **options)
        if not names:
            return plain(*arguments, **options)
        seams.passed("before", *names)
        done = plain(*arguments, **options)
        seams.passed("after", *names)
        return done

    setattr(owner, name, wrapped)


def wrap_coroutine(seams: Seams, owner: Any, name: str, names_of: Callable[..., tuple[str, ...]]) -> None:
    plain = getattr(owner, name)

    @functools.wraps(plain)
    async def wrapped(*arguments: Any, **options: Any) -> Any:
        names = names_of(*arguments, **options)
        if not names:
            return await plain(*arguments, **options)
        seams.passed("before", *names)
        done = await plain(*arguments, **options)
        seams.passed("after", *names)
        return done

    setattr(owner, name, wrapped)


def program_of(argv: Any) -> str:
    """`git push`, `launcher.py`, `lodger_daemon.models.worker`."""
    words = [os.fsdecode(word) for word in ([argv] if isinstance(argv, str | bytes | os.PathLike) else argv)]
    if "-m" in words:
        return words[words.index("-m") + 1]
    if any(word.endswith("/git") or word == "git" for word in words):
        start = next(i for i, word in enumerate(words) if word.endswith("/git") or word == "git") + 1
        while start < len(words) and words[start].startswith("-"):
            start += 2 if words[start] in ("-c", "-C") else 1
        return f"git {words[start]}" if start < len(words) else "git"
    scripts = [Path(word).name for word in words if word.endswith(".py")]
    return scripts[0] if scripts else Path(words[0]).name


def wrap_processes(seams: Seams) -> None:
    # asyncio starts processes through Popen, too.
    def started(self: Any, argv: Any, *_: Any, **__: Any) -> tuple[str, ...]:
        self.lodger_test_program = program_of(argv)
        return (f"spawn {self.lodger_test_program}",)

    def ended(self: Any, *_: Any, **__: Any) -> tuple[str, ...]:
        return (f"end of {getattr(self, 'lodger_test_program', '?')}",)

    wrap_function(seams, subprocess.Popen, "__init__", started)
    wrap_function(seams, subprocess.Popen, "communicate", ended)


def wrap_files(seams: Seams) -> None:
    def renamed(source: Any, target: Any, *_: Any, **__: Any) -> tuple[str, ...]:
        return (f"rename {re.sub(r'agent-[0-9a-f-]{36}|[0-9a-f]{16}', '*', Path(os.fsdecode(target)).name)}",)

    wrap_function(seams, os, "replace", renamed)
    wrap_function(seams, os, "rename", renamed)


def wrap_sockets(seams: Seams) -> None:
    from websockets.asyncio.client import ClientConnection

    from lodger_daemon.clients import app_server

    def kind_of(message: Any) -> str:
        data = message[:4096] if isinstance(message, str | bytes | bytearray) else b""
        found = KIND.search(data.decode("utf-8", "replace") if not isinstance(data, str) else data)
        return found[1] if found else "other"

    def sent_to_hub(_: Any, message: Any, *__: Any, **___: Any) -> tuple[str, ...]:
        return (f"send to hub {kind_of(message)}",)

    def sent_to_client(_: Any, frames: list[bytes]) -> tuple[str, ...]:
        return tuple(f"send to client {kind_of(frame)}" for frame in frames)

    wrap_coroutine(seams, ClientConnection, "send", sent_to_hub)
    wrap_coroutine(seams, app_server, "_send_together", sent_to_client)


def wrap_daemon(seams: Seams) -> None:
    from lodger_daemon.memory import seams as memory_seams
    from lodger_daemon.models.contract import StepEnded
    from lodger_daemon.models.worker_link import WorkerLink
    from lodger_tools.box.link import BoxLink

    def memory_seam(name: str) -> None:
        side, _, what = name.partition(" ")
        seams.passed(side, f"memory {what}")

    memory_seams.no_seam = memory_seam
    plain = WorkerLink.step

    async def step(self: Any, *arguments: Any) -> AsyncIterator[Any]:
        seams.passed("before", "model request")
        chunks, first = plain(self, *arguments), True
        try:
            async for chunk in chunks:
                if first:
                    seams.passed("after", "model request")
                    first = False
                if isinstance(chunk, StepEnded):
                    seams.passed("before", "model answer")
                yield chunk
            seams.passed("after", "model answer")
        finally:
            await chunks.aclose()

    WorkerLink.step = step  # type: ignore[assignment, method-assign]
    for name in ("run", "run_a_while", "begin"):
        wrap_coroutine(seams, BoxLink, name, lambda _, call, *__: (f"box {type(call.operation).__name__}",))
    for name in ("collect", "collect_a_while"):
        wrap_coroutine(seams, BoxLink, name, lambda *_: ("box collect",))
    wrap_function(seams, BoxLink, "_send", lambda _, frame: ("send to box",) if b'"do"' in frame[:4096] else ())


def wrap_hub(seams: Seams) -> None:
    from starlette.websockets import WebSocket

    from lodger_hub.git_host import seams as git_host_seams

    def git_host_seam(name: str) -> None:
        side, _, what = name.partition(" ")
        seams.passed(side, f"git host {what}")

    git_host_seams.no_seam = git_host_seam

    def sent(self: Any, message: Any) -> tuple[str, ...]:
        if message.get("type") != "websocket.send":
            return ()
        text = message.get("text") or (message.get("bytes") or b"").decode("utf-8", "replace")
        found = KIND.search(text[:4096])
        return (f"relay {found[1] if found else 'other'}",)

    wrap_coroutine(seams, WebSocket, "send", sent)


def main() -> None:
    fd = int(os.environ.pop("LODGER_TEST_SEAMS_FD", "-1"))
    control = socket.socket(fileno=fd) if fd >= 0 else None
    if control is not None:
        control.set_inheritable(False)
    seams = Seams(control)
    wrap_commits(seams)
    wrap_processes(seams)
    wrap_files(seams)
    wrap_sockets(seams)
    if sys.argv[1] == "hub":
        wrap_hub(seams)
    else:
        wrap_daemon(seams)
    if control is not None:
        threading.Thread(target=seams.listen, daemon=True).start()
    from lodger_cli.main import main as lodger

    lodger()


if __name__ == "__main__":
    sys.path.pop(0)  # the tests' own folder is no place to import from
    main()
