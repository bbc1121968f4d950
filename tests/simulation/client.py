"""One client of a person: sends until it is told that it was taken, resumes from its cursor, remembers what it saw."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from simulation.plan import ClientPlan
from simulation.relay import RelayWire
from simulation.wire import Frame, Wire
from simulation.world import World

if TYPE_CHECKING:
    from simulation.run_seed import Run

RESEND_S: Final = 8.0
OF_THE_CONNECTION: Final = frozenset({"event_seq", "emitted_at", "idempotency_key"})
STATE_FRAMES: Final = frozenset({"update_loop_status", "update_queue", "update_device_status", "update_subagent_state"})


@dataclass
class Unanswered:
    """A command that is sent again until it is answered."""

    frame: Frame
    text: str


@dataclass
class Kept:
    """What this client knows of one conversation."""

    conversation: str
    cursor: int | None = None
    first_cursor: int | None = None
    """From here on it has missed nothing."""
    seen: dict[int, Frame] = field(default_factory=dict)
    questions: dict[str, Frame] = field(default_factory=dict)
    started: bool = False
    starting: int = 0
    """Starts under way on this connection: each replays from where it was asked."""
    queue: list[Frame] = field(default_factory=list)
    loop: str = ""


class Client:
    """Its memory survives everything: it is a page that keeps what it has."""

    def __init__(self, run: "Run", name: str, conversations: list[str], plan: ClientPlan):
        self.run = run
        self.world: World = run.world
        self.name = name
        self.kept = {conversation: Kept(conversation) for conversation in conversations}
        self.unanswered: dict[str, Unanswered] = {}
        self.taken: set[str] = set()
        """Ids of messages whose acceptance this client was told."""
        self.refused: dict[str, str] = {}
        self.batches = plan.batches
        self._can_answer = plan.questions
        self._asks_together = plan.asks_together
        self._tool = plan.tool
        self._by_hub = plan.by_hub
        self._wire: Wire | RelayWire | None = None
        self._requests = 0
        self._wanted = True
        self._starts: dict[str, Kept] = {}

    # -- the connection --

    def connect(self) -> None:
        if not self._wanted or self._wire is not None:
            return
        lost: list[bool] = []

        def gone() -> None:
            if not lost:
                lost.append(True)
                self._lost(wire)

        wire = self._dial(gone)
        if wire is None:
            self.world.later(self.world.between(0.2, 2.0), self.connect)
            return
        self.world.note(self.name, "connects")
        self._wire = wire
        self._starts.clear()
        for kept in self.kept.values():
            kept.started, kept.starting = False, 0
            self._begin(kept)

    def _dial(self, gone: Callable[[], None]) -> Wire | RelayWire | None:
        daemon, hub = self.run.daemon, self.run.hub
        if self._by_hub and hub is not None:
            try:
                return RelayWire(self.world, hub, self._hear, gone)
            except ConnectionError:
                return None
        return daemon.connect(self._hear, gone) if daemon is not None and daemon.ready else None

    def cut(self) -> None:
        if self._wire is not None:
            self.world.note(self.name, "is cut off")
            self._wire.cut()

    def go_silent(self) -> None:
        """Half open for a while, then cut."""
        if self._wire is not None:
            wire = self._wire
            wire.silent = True
            self.world.later(self.world.between(1, 20), wire.cut)

    def leave(self) -> None:
        self._wanted = False
        self.cut()

    def _lost(self, wire: Wire | RelayWire | None) -> None:
        if self._wire is not wire:
            return
        self._wire = None
        self.world.later(self.world.between(0.05, 3.0), self.connect)

    def _begin(self, kept: Kept) -> None:
        frame: Frame = {
            "type": "runtime_start",
            "request_id": self._request_id(),
            "agent_id": self.run.agent_id,
            "conversation_id": kept.conversation,
            "wait_for_replay": True,
            "client_info": {
                "name": self.name,
                "capabilities": {
                    "resume": True,
                    "receipts": True,
                    "batch_deltas": self.batches,
                    "questions": self._can_answer,
                    "batch_questions": self._asks_together,
                },
            },
        }
        if kept.cursor is not None:
            frame["after_event"] = kept.cursor
        if self._tool:
            parameters = {"type": "object", "properties": {"command": {"type": "string"}}}
            ring = {"name": f"phone_{self.name}", "description": "rings", "parameters": parameters}
            frame["external_tools"] = [{"tools": [ring]}]
        kept.starting += 1
        self._starts[frame["request_id"]] = kept
        self._send(frame)
        self._ask_again(self._wire, kept)

    def _ask_again(self, wire: Wire | RelayWire | None, kept: Kept) -> None:
        """A start that was refused (the disk is full) is tried again."""

        def again() -> None:
            if wire is self._wire and wire is not None and not kept.started:
                self._begin(kept)

        self.world.later(20.0, again)

    # -- what a person does --

    def say(self, conversation: str, text: str, message_id: str, **options: Any) -> None:
        payload: Frame = {
            "kind": "create_message",
            "messages": [{"role": "user", "content": text, "client_message_id": message_id, "otid": message_id}],
            **options,
        }
        self._until_answered(conversation, payload, message_id, text)

    def abort(self, conversation: str) -> None:
        self._send({"type": "abort_message", "runtime": self._runtime(conversation), "request_id": self._request_id()})

    def remove_one(self, conversation: str) -> None:
        queue = self.kept[conversation].queue
        if queue:
            item = self.world.chance.choice(queue)
            self._send_with_id("remove_queue_item", conversation, item_id=item["id"])

    def resume_queue(self, conversation: str) -> None:
        self._send_with_id("resume_queue", conversation)

    def change_mode(self, conversation: str, mode: str) -> None:
        payload = {"mode": mode}
        if mode == "unrestricted":
            self.run.boxes.may_skip_questions = True
        self._send({"type": "change_device_state", "runtime": self._runtime(conversation), "payload": payload})

    def compact(self, conversation: str) -> None:
        self._send({"type": "conversation_compact", "request_id": self._request_id(), "conversation_id": conversation})

    def recompile(self, conversation: str) -> None:
        self.run.provider.may_change(f"{self.run.agent_id}/{conversation}")
        self._send(
            {"type": "conversation_recompile", "request_id": self._request_id(), "conversation_id": conversation}
        )

    def sync(self, conversation: str) -> None:
        kept = self.kept[conversation]
        self._send_with_id("sync", conversation, after_event=kept.cursor)

    def answer(self, conversation: str, question_id: str) -> None:
        """Yes or no to a question, also to one that is gone already."""
        chance = self.world.chance
        question = self.kept[conversation].questions.get(question_id)
        command = question["request"]["input"].get("command") if question else "ask changed"
        decision: Frame
        match chance.randrange(6):
            case 0 | 1 | 2 | 3 | 4 if command is None:
                # The stop at a limit of spending.
                decision = {"behavior": "allow"}
            case 0 | 1 | 2:
                decision = {"behavior": "allow"}
            case 3:
                decision = {"behavior": "allow", "updated_input": {"command": f"{command} changed"}}
            case 4:
                self.run.boxes.may_skip_questions = True
                decision = {"behavior": "allow", "selected_permission_suggestion_ids": ["always"]}
            case _:
                decision = {"behavior": "deny", "message": "rather not"}
        payload: Frame = {"kind": "approval_response", "request_id": question_id, "decision": decision}
        for _ in range(chance.choice((1, 1, 2))):
            request_id = self._request_id()
            self.run.around.answers_sent[request_id] = (conversation, question_id)
            runtime = self._runtime(conversation)
            self._send({"type": "input", "request_id": request_id, "runtime": runtime, "payload": payload})

    # -- sending --

    def _until_answered(self, conversation: str, payload: Frame, message_id: str, text: str) -> None:
        self._requests += 1
        # The id of the message stands in front, so that whoever sees the answer pass knows what it is about.
        request_id = f"{message_id}#{self.name}-{self._requests}"
        frame: Frame = {
            "type": "input",
            "request_id": request_id,
            "runtime": self._runtime(conversation),
            "payload": payload,
        }
        self.unanswered[message_id] = Unanswered(frame, text)
        self._push(message_id)

    def _push(self, message_id: str) -> None:
        waiting = self.unanswered.get(message_id)
        if waiting is None:
            return
        self._send(waiting.frame)
        if self.world.happens(0.1):
            self._send(waiting.frame)
        self.world.later(RESEND_S, self._push, message_id)

    def _send(self, frame: Frame) -> None:
        if self._wire is not None:
            self._wire.send(frame)

    def _send_with_id(self, kind: str, conversation: str, **fields: Any) -> None:
        runtime = self._runtime(conversation)
        self._send({"type": kind, "request_id": self._request_id(), "runtime": runtime, **fields})

    def _request_id(self) -> str:
        self._requests += 1
        return f"{self.name}-{self._requests}"

    def _runtime(self, conversation: str) -> Frame:
        return {"agent_id": self.run.agent_id, "conversation_id": conversation}

    # -- hearing --

    def _hear(self, frame: Frame) -> None:
        match frame["type"]:
            case "input_accepted":
                self._hear_accepted(frame)
            case "runtime_start_response":
                self._hear_started(frame)
            case "external_tool_call_request":
                self._hear_tool_call(frame)
            case "control_request":
                self._hear_event(frame)
                self._hear_question(frame)
            case "error":
                pass
            case kind if "runtime" in frame and "event_seq" in frame:
                self._hear_event(frame)
                if kind == "update_queue":
                    self.kept[frame["runtime"]["conversation_id"]].queue = frame["queue"]
                elif kind == "update_loop_status":
                    self.kept[frame["runtime"]["conversation_id"]].loop = frame["loop_status"]["status"]
            case _:
                pass

    def _hear_accepted(self, frame: Frame) -> None:
        request_id = frame["request_id"]
        message_id = request_id.partition("#")[0]
        if "#" in request_id:
            if message_id not in self.unanswered:
                return
            if frame["accepted"]:
                self.taken.add(message_id)
                del self.unanswered[message_id]
                self.world.note(self.name, f"is told that {message_id} was taken: {frame['disposition']}")
            else:
                self._hear_refusal(message_id, str(frame.get("error")))
            return

    def _hear_refusal(self, message_id: str, reason: str) -> None:
        """A full disk or a full queue: this client tries again later."""
        self.world.note(self.name, f"is told that {message_id} was refused: {reason}")
        self.refused[message_id] = reason

    def _hear_started(self, frame: Frame) -> None:
        kept = self._starts.pop(frame["request_id"], None)
        if kept is None:
            return
        kept.starting -= 1
        if not frame["success"]:
            self.world.note(self.name, f"could not start: {frame.get('error')}")
            return
        number = int(frame["lodger_last_event"])
        self.world.note(self.name, f"has {kept.conversation} up to {number}, before {kept.cursor}")
        kept.started = True
        if kept.first_cursor is None:
            kept.first_cursor = number
        kept.cursor = max(number, kept.cursor or 0)

    def _hear_event(self, frame: Frame) -> None:
        kept = self.kept[frame["runtime"]["conversation_id"]]
        number = frame.get("lodger_event")
        if number is None or (frame["type"] in STATE_FRAMES and not frame.get("removed")):
            if number is not None and kept.started:
                kept.cursor = max(number, kept.cursor or 0)
            return
        if kept.started and kept.starting == 0 and kept.cursor is not None and number <= kept.cursor:
            self.world.fail("numbers grow", f"{self.name} got event {number} after {kept.cursor}")
        self._check_meaning(kept.conversation, number, frame)
        kept.seen[number] = frame
        if kept.started and kept.cursor is not None:
            # Not before all that was missed is there: a start may fail in the middle.
            kept.cursor = max(number, kept.cursor)
        if frame["type"] == "lodger_question_settled":
            kept.questions.pop(frame["request_id"], None)
        elif frame["type"] == "turn_finished":
            kept.questions.clear()

    def _check_meaning(self, conversation: str, number: int, frame: Frame) -> None:
        """One number, one event, for every client and every replay."""
        if self.batches:
            return
        body = {k: v for k, v in frame.items() if k not in OF_THE_CONNECTION}
        if "delta" in frame:
            # Fragments of one message are kept together, under one time.
            body["delta"] = {k: v for k, v in frame["delta"].items() if k != "date"}
        known = self.world.sent_numbers.setdefault((conversation, number), body)
        if known != body:
            self.world.fail("one number, one event", f"{conversation} {number} was {known} and is {body}")

    def _hear_question(self, frame: Frame) -> None:
        conversation = frame["runtime"]["conversation_id"]
        self.kept[conversation].questions[frame["request_id"]] = frame
        if self._can_answer and self.world.happens(self.world.weather.answers_questions):
            self.world.later(self.world.between(0.05, 60), self.answer, conversation, frame["request_id"])

    def _hear_tool_call(self, frame: Frame) -> None:
        wire = self._wire
        self.run.external_call(frame["runtime"]["conversation_id"], frame["tool_call_id"], str(frame["input"]))
        if self.world.happens(0.1):
            return

        def reply() -> None:
            if wire is not None and wire is self._wire:
                result = {"content": [{"type": "text", "text": "it rang"}]}
                wire.send({"type": "external_tool_call_response", "request_id": frame["request_id"], "result": result})

        self.world.later(self.world.between(0.05, 20), reply)
