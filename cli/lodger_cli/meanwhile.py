"""What the agent says about background work that has ended, while a command still waits for other work."""

from collections.abc import Callable
from typing import Final

from lodger_cli.runtime import processes_of
from lodger_cli.turn import TurnResult, read_delta
from lodger_cli.wire import Frame

NOTICE: Final = "task_notification"
"""What the queue calls the message by which ended work reaches its conversation."""


class Meanwhile:
    """Reads the frames of a conversation from before its own turn on; tells of no turn before `begin`.

    The turn that the last of the work begins is nobody's to wait for, and so is told of by no race either: what counts
    is which came first, not when somebody looked.
    """

    def __init__(self, runtime: Frame, tell: Callable[[TurnResult], None]) -> None:
        self._runtime = runtime
        self._tell = tell
        self._before: frozenset[str] | None = None
        """None until `begin`."""
        self._running: frozenset[str] = frozenset()
        self._notices: set[str] = set()
        """Ids of the messages that told of ended work."""
        self._causes: dict[str, list[str]] = {}
        """Ids of the messages that a run answers, by the run's."""
        self._said: list[str] = []
        """By the turn that goes on."""

    def begin(self, before: frozenset[str]) -> None:
        """The own turn is over; work that ran `before` it is not waited for."""
        self._before = before

    def read(self, frame: Frame) -> None:
        if frame.get("runtime") not in (None, self._runtime):
            return
        match frame.get("type"):
            case "update_device_status":
                self._running = frozenset(str(one.get("process_id")) for one in processes_of(frame))
            case "update_queue":
                waiting = [one for one in frame.get("queue") or [] if one.get("kind") == NOTICE]
                self._notices.update(str(one.get("client_message_id")) for one in waiting)
            case "update_loop_status":
                self._causes.update(frame["loop_status"].get("client_message_ids_by_run_id") or {})
            case "stream_delta":
                read_delta(frame["delta"], self._said)
            case "turn_finished":
                self._finished(frame)
            case _:
                pass

    def _finished(self, frame: Frame) -> None:
        text, self._said = "".join(self._said), []
        if self._before is None or not self._running - self._before:
            return
        if not self._notices.isdisjoint(self._causes.get(frame.get("run_id") or "", ())):
            self._tell(TurnResult(frame["stop_reason"], text, frame.get("error")))
