"""From the name of an operation to the code that does it. Files of rarely used ones are imported at first use."""

from __future__ import annotations

import errno
import os

from lodger_tools.runner.file_errors import FileRefused, words_for
from lodger_tools.runner.kept_output import KeptOutput
from lodger_tools.runner.work import Work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lodger_tools.runner.calls import Call
    from lodger_tools.runner.children import Children
    from lodger_tools.runner.poll import Poll

SHELLS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh")
CAPTURE_LIMIT_BYTES = 10 * 1024 * 1024
SEARCH_TIMEOUT_S = 60.0
PREVIEW_TIMEOUT_S = 5.0
STARTING = frozenset(("run_command", "run_program", "find_files", "search_files", "preview_change"))
"""The operations that take a process of their own."""


class Operations:
    def __init__(self, poll: Poll, children: Children, running_pids: Callable[[], set[int]]) -> None:
        self._poll = poll
        self._children = children
        self._running_pids = running_pids
        self._environment = dict(os.environ)
        """Nothing here changes it, and `os.environ` decodes every name at each use."""
        self._shell = next((path for path in SHELLS if os.access(path, os.X_OK)), "/bin/sh")
        self._seen: dict[str, tuple[int, int]] = {}
        """What each file held when it was last read or written by a tool: size and hash by real path."""

    def start(
        self, call: Call, kind: str, args: dict[str, Any], cwd: str, extra: dict[str, str], payload: bytes
    ) -> None:
        """Begin, and for most operations end, one call. Every failure is its outcome."""
        try:
            self._start(call, kind, args, cwd, {**self._environment, **extra}, payload)
        except FileRefused as refusal:
            call.finish("error", str(refusal))
        except OSError as error:
            if error.errno == errno.EAGAIN and kind in STARTING:
                call.finish("error", self._make_room())
            else:
                call.finish("error", words_for(error, args.get("path") or cwd))
        except (KeyError, TypeError, ValueError) as error:
            call.finish("error", f"The box's runner cannot use this request: {type(error).__name__}: {error}")

    def _make_room(self) -> str:
        ended = self._children.make_room(self._running_pids())
        if ended:
            return (
                f"This box had no room for another process, so its {ended} background processes were ended. Try again."
            )
        return "This box has no room for another process; wait for a running command to end."

    def _start(
        self, call: Call, kind: str, args: dict[str, Any], cwd: str, env: dict[str, str], payload: bytes
    ) -> None:
        match kind:
            case "run_command":
                self._run_command(call, args, cwd, env)
            case "run_program":
                self._run_program(call, args, cwd, env, payload)
            case "read_file":
                from lodger_tools.runner.read_file import read_file

                call.finish("success", read_file(self._seen, full_path(args["path"], cwd, env), **lines_of(args)))
            case "write_file":
                from lodger_tools.runner.write_file import write_file

                path = full_path(args["path"], cwd, env)
                call.finish("success", write_file(self._seen, path, payload))
            case "edit_file":
                from lodger_tools.runner.edit_file import edit_file

                path = full_path(args["path"], cwd, env)
                call.finish("success", edit_file(self._seen, path, *edit_of(args, payload)))
            case "read_head":
                from lodger_tools.runner.read_head import read_head

                commit, details = read_head(full_path(args["repository"], cwd, env))
                call.finish("success", commit, details=details)
            case "look_at_files":
                from lodger_tools.runner.look_at_files import look_at_files

                call.finish("success", details={"files": look_at_files(args["paths"], args["marks"], cwd, env)})
            case "find_files" | "search_files" | "preview_change":
                self._start_search(call, kind, args, cwd, env, payload)
            case _:
                call.finish("error", f"The box's runner does not know the operation {kind!r}.")

    def _run_command(self, call: Call, args: dict[str, Any], cwd: str, env: dict[str, str]) -> None:
        command: str = args["command"]
        if args.get("pinned"):
            from lodger_tools.runner.look_at_files import refuse_changed

            refuse_changed(args["pinned"], cwd, env)
        argv = [self._shell, "-c", command]
        if self._shell.endswith("bash"):
            argv[1:1] = ["--login"] if args.get("login") else ["--norc"]
        work = Work(self._poll, self._children, call, self._running_pids)
        if args.get("session"):
            terminal: bool = args["terminal"]
            if terminal:
                env = {**env, "TERM": "xterm-256color"}
            work.start_session(argv, cwd, env, args["timeout_s"], terminal=terminal)
        else:
            work.start_program(argv, cwd, env, args["timeout_s"], joined=True)

    def _run_program(self, call: Call, args: dict[str, Any], cwd: str, env: dict[str, str], payload: bytes) -> None:
        call.output.head_limit_bytes = args["stdout_limit_bytes"]
        call.output.tail_limit_bytes = 0
        Work(self._poll, self._children, call, self._running_pids).start_program(
            args["argv"], cwd, env, args["timeout_s"], stdin=payload, stops_at_limit=True, finish=finish_program
        )

    def _start_search(
        self, call: Call, kind: str, args: dict[str, Any], cwd: str, env: dict[str, str], payload: bytes
    ) -> None:
        work = Work(self._poll, self._children, call, self._running_pids, KeptOutput(CAPTURE_LIMIT_BYTES, 0))
        if kind == "find_files":
            from lodger_tools.runner.find_files import find_files

            root = full_path(args.get("folder") or cwd, cwd, env)
            work.start_fork(lambda: find_files(args["pattern"], root), cwd, SEARCH_TIMEOUT_S, finish_captured)
            load_expressions()
        elif kind == "preview_change":
            from lodger_tools.runner.preview import preview

            path = full_path(args["path"], cwd, env)
            work.start_fork(lambda: preview(path, args, payload), cwd, PREVIEW_TIMEOUT_S, finish_captured)
            load_comparison()
        else:
            self._search(work, call, args, cwd, env)

    def _search(self, work: Work, call: Call, args: dict[str, Any], cwd: str, env: dict[str, str]) -> None:
        from lodger_tools.runner.search_files import ripgrep_argv, search_in_process, search_one_file, shaped

        path = full_path(args.get("path") or cwd, cwd, env)
        at_once = search_one_file(path, args)
        if at_once is not None:
            call.finish("success", at_once)
            return
        argv = ripgrep_argv(path, args)
        if argv is None:
            work.start_fork(lambda: search_in_process(path, args), cwd, SEARCH_TIMEOUT_S, finish_captured)
            load_expressions()
            return

        def finish(done: Work, exit_code: int) -> tuple[str, str, dict[str, Any]]:
            # rg ends with 1 when nothing matched, with 2 also when it could not read some file on its way.
            found = done.output.whole().decode("utf-8", "replace")
            if done.ended_by not in ("", "limit") or (exit_code >= 2 and not found and not done.ended_by):
                return "error", ended_words(done) or done.errors.strip() or f"the search ended with {exit_code}", {}
            return "success", shaped(found, args), {}

        work.start_program(argv, cwd, env, SEARCH_TIMEOUT_S, stops_at_limit=True, finish=finish)


def load_expressions() -> None:
    """After the first child was forked, which loads them for itself in 8 ms: every later one is forked with them."""
    import re  # noqa: F401


def load_comparison() -> None:
    """The same, for what shows a change."""
    import difflib  # noqa: F401


def finish_program(work: Work, exit_code: int) -> tuple[str, str, dict[str, Any]]:
    if work.ended_by == "limit":
        return "error", f"its output exceeded {work.output.head_limit_bytes} bytes; it was ended", {"too_large": True}
    return ("success" if exit_code == 0 and not work.ended_by else "error"), work.errors, {}


def finish_captured(work: Work, exit_code: int) -> tuple[str, str, dict[str, Any]]:
    text = work.output.whole().decode("utf-8", "replace")
    if work.ended_by:
        return "error", ended_words(work), {}
    return ("success" if exit_code == 0 else "error"), text, {}


def ended_words(work: Work) -> str:
    match work.ended_by:
        case "timeout":
            return "It took too long and was ended; narrow it to a folder or a rarer pattern."
        case "limit":
            return "It found too much and was ended; narrow it to a folder or a rarer pattern."
        case "cancel":
            return "It was cancelled."
        case _:
            return ""


def full_path(path: str, cwd: str, env: dict[str, str]) -> str:
    """Absolute, as the caller means it; links are left to the kernel."""
    if "\0" in path or not path:
        raise FileRefused("The path is empty or holds a NUL character.")
    if path == "~" or path.startswith("~/"):
        path = env.get("HOME", "/") + path[1:]
    return path if path.startswith("/") else f"{cwd.rstrip('/')}/{path}"


def lines_of(args: dict[str, Any]) -> dict[str, int]:
    return {"first_line": args["first_line"], "line_count": args["line_count"]}


def edit_of(args: dict[str, Any], payload: bytes) -> tuple[str, str, bool, int | None]:
    """The two texts travel as one payload: JSON escapes would double them."""
    old_bytes: int = args["old_bytes"]
    old, new = payload[:old_bytes].decode(), payload[old_bytes:].decode()
    return old, new, args["replace_all"], args["expected_replacements"]
