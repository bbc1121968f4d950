"""Faults put into the product on purpose: each must be caught by a seed, or by a test that is named here.

A mutation replaces functions of the product in this process while a seed is played. `python -m simulation.mutations`
looks for the first fixed seed that catches each, for the table in the README.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from lodger_daemon.backends.core import compaction
from lodger_daemon.backends.local.backend import LocalBackend
from lodger_daemon.models.contract import SystemMessage, UserMessage
from lodger_daemon.questions.questions import QuestionBook
from lodger_daemon.store import journal_rows, message_rows, writer
from lodger_daemon.store.errors import StateConflict
from lodger_daemon.turns import closing_work, early_reads, recovery, retelling
from lodger_daemon.turns.actor import ConversationActor
from lodger_daemon.turns.beside import CommitsBeside
from lodger_daemon.turns.contract import Accepted
from lodger_daemon.turns.core import machine
from lodger_daemon.turns.core.calls import Undecided
from lodger_daemon.turns.core.events import LoopStatus
from lodger_daemon.turns.core.machine_events import InputWaits
from lodger_daemon.turns.core.outcomes import DEVICE, loop
from lodger_daemon.turns.core.states import Active, Asking, Idle
from lodger_daemon.turns.event_log import EventLog
from lodger_daemon.turns.intake import Intake
from simulation.run import be_quiet
from simulation.run_seed import play_seed


class Patches:
    """Replaced attributes, put back in the end."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Returns what was there."""
        before = vars(owner)[name]
        self._before.append((owner, name, before))
        setattr(owner, name, value)
        return before

    def undo(self) -> None:
        for owner, name, before in reversed(self._before):
            setattr(owner, name, before)


@dataclass(frozen=True)
class Mutation:
    name: str
    install: Callable[[Patches], None]
    seed: int
    """Of the fixed ones, known to catch it."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        patches = Patches()
        try:
            self.install(patches)
            yield
        finally:
            patches.undo()


def memory_rewrites_prompt(patches: Patches) -> None:
    build = vars(LocalBackend)["build"]

    async def mutated(self: Any, standing: Any, *rest: Any) -> Any:
        if self._memory.status(standing.agent.id).head != standing.shown_memory_commit:
            standing = replace(standing, system_prompt=None)
        return await build(self, standing, *rest)

    patches.set(LocalBackend, "build", mutated)


def compaction_destroys(patches: Patches) -> None:
    compact = vars(message_rows)["compact"]

    def mutated(connection: Any, key: Any, summary: Any, kept: Any) -> Any:
        stored = compact(connection, key, summary, kept)
        connection.execute("DELETE FROM messages WHERE number NOT IN (SELECT message FROM in_context)")
        return stored

    patches.set(message_rows, "compact", mutated)


def compaction_cuts_calls(patches: Patches) -> None:
    patches.set(compaction, "_may_begin_at", lambda message: True)


def calls_stay_open(patches: Patches) -> None:
    patches.set(closing_work, "_open_calls", lambda *_: ())


def reminders_in_prompt(patches: Patches) -> None:
    build = vars(LocalBackend)["build"]

    async def mutated(self: Any, standing: Any, *rest: Any) -> Any:
        built = await build(self, standing, *rest)
        first, *others = built.request.messages
        today = f"{first.text}\nToday is {self._clock.wall() // 86_400}, the mode is {standing.mode}."
        return replace(built, request=replace(built.request, messages=(SystemMessage(today), *others)))

    patches.set(LocalBackend, "build", mutated)


def acknowledged_before_stored(patches: Patches) -> None:
    submit = vars(Intake)["submit"]

    async def mutated(self: Any, key: Any, item: Any) -> Any:
        actor = await self._registry.actor(key)

        async def later() -> None:
            await submit(self, key, item)

        actor.own(later())
        return Accepted("queued")

    patches.set(Intake, "submit", mutated)


def calls_repeat_after_crash(patches: Patches) -> None:
    start = vars(journal_rows)["start"]

    def tolerant(connection: Any, *rest: Any) -> None:
        try:
            start(connection, *rest)
        except StateConflict:
            return

    patches.set(journal_rows, "start", tolerant)
    patches.set(recovery, "_progress", lambda *_: Undecided())


def memory_update_said_once(patches: Patches) -> None:
    build = vars(LocalBackend)["build"]
    remind = vars(LocalBackend)["_remind"]

    def without(self: Any, standing: Any, transcript: Any, message: Any, update: Any) -> Any:
        self.said_once = update.summary if update is not None else ""
        return remind(self, standing, transcript, message, None)

    async def mutated(self: Any, standing: Any, transcript: Any, user_message: Any, *rest: Any) -> Any:
        self.said_once = ""
        built = await build(self, standing, transcript, user_message, *rest)
        if not self.said_once:
            return built
        said = UserMessage(({"type": "text", "text": self.said_once},))
        messages = (*built.request.messages[:-1], said, *built.request.messages[-1:])
        return replace(built, request=replace(built.request, messages=messages))

    patches.set(LocalBackend, "_remind", without)
    patches.set(LocalBackend, "build", mutated)


def two_leases(patches: Patches) -> None:
    begin = vars(machine)["_begin"]
    patches.set(machine, "_begin", lambda state, event: begin(Idle(), event))

    def pump(self: Any) -> None:
        if self.desk.waiting():
            work = self._new_work(f"turn-{self.desk.services.rng.uuid()}")
            self.feed(InputWaits(work.lease, work.turn_id, False, self.desk.services.options.max_steps))

    patches.set(ConversationActor, "pump", pump)


def late_answer_undoes_abort(patches: Patches) -> None:
    abort = vars(machine)["_abort"]
    interrupt = vars(ConversationActor)["interrupt"]

    def shown_only(state: Any) -> Any:
        if isinstance(state, Active) and isinstance(state.phase, Asking):
            return state, (loop(LoopStatus.WAITING_ON_INPUT), DEVICE)
        return abort(state)

    def interrupted(self: Any) -> bool:
        asking = isinstance(self._state, Active) and isinstance(self._state.phase, Asking)
        return bool(interrupt(self)) or asking

    patches.set(machine, "_abort", shown_only)
    patches.set(ConversationActor, "interrupt", interrupted)


def questions_count_wall_time(patches: Patches) -> None:
    init = vars(QuestionBook)["__init__"]

    class WallOnly:
        def __init__(self, clock: Any) -> None:
            self.wall = clock.wall
            self.mono = clock.wall

    def mutated(self: Any, database: Any, clock: Any, *rest: Any, **named: Any) -> None:
        init(self, database, WallOnly(clock), *rest, **named)

    patches.set(QuestionBook, "__init__", mutated)


def replaced_daemon_writes(patches: Patches) -> None:
    patches.set(writer, "check_epoch", lambda *_: None)


def results_not_told_again(patches: Patches) -> None:
    async def mutated(desk: Any) -> None:
        return

    patches.set(retelling, "tell_last_step", mutated)


def events_stored_beside(patches: Patches) -> None:
    async def mutated(self: Any, change: Any) -> Any:
        return await self._database.write(change)

    patches.set(EventLog, "write", mutated)


def next_commit_overtakes(patches: Patches) -> None:
    async def mutated(self: Any) -> None:
        return

    patches.set(CommitsBeside, "settled", mutated)


def shown_before_stored(patches: Patches) -> None:
    patches.set(CommitsBeside, "publish", lambda self, event: self._deliver(event))


def result_shown_beside(patches: Patches) -> None:
    run = vars(CommitsBeside)["run"]

    async def mutated(self: Any, commit: Any, go_on: Any) -> None:
        def telling_at_once() -> None:
            self._telling = None
            go_on()

        await run(self, commit, telling_at_once)

    patches.set(CommitsBeside, "run", mutated)


def every_call_begins_early(patches: Patches) -> None:
    patches.set(early_reads, "_only_reads", lambda *_: True)


ELSEWHERE = (
    (
        "memory compiled from the work tree",
        "tests/unit/daemon/memory/test_compiled_from_published.py",
    ),
    (
        "the fixed floor is left out of the budget",
        "tests/unit/daemon/backends/test_small_windows.py",
    ),
)
"""Caught by tests of their own: the first is about the room of memory, which is played here; the second is mended by
what providers report, so that no promise breaks."""

MUTATIONS = (
    Mutation("a memory change rewrites the prompt", memory_rewrites_prompt, 2),
    Mutation("compaction destroys what it hides", compaction_destroys, 1),
    Mutation("compaction cuts between a call and its result", compaction_cuts_calls, 60),
    Mutation("calls of a broken turn stay open", calls_stay_open, 17),
    Mutation("reminders stand in the system prompt", reminders_in_prompt, 1),
    Mutation("a message is acknowledged before it is stored", acknowledged_before_stored, 1),
    Mutation("a call is repeated after a crash", calls_repeat_after_crash, 6),
    Mutation("a memory update is said once and not kept", memory_update_said_once, 2),
    Mutation("two turns of one conversation at once", two_leases, 1),
    Mutation("questions count wall time", questions_count_wall_time, 84),
    Mutation("a replaced daemon goes on writing", replaced_daemon_writes, 5),
    Mutation("what a crash took is not told again", results_not_told_again, 1),
    Mutation("events are stored beside the commit", events_stored_beside, 3),
    Mutation("a late answer undoes a cancellation", late_answer_undoes_abort, 41),
    Mutation("a commit overtakes one that the turn went past", next_commit_overtakes, 162),
    Mutation("the next status is shown before the result is stored", shown_before_stored, 1),
    Mutation("a result is shown beside its commit", result_shown_beside, 1),
    Mutation("calls with effects begin before their step is stored", every_call_begins_early, 1),
)


def caught_by(mutation: Mutation, seeds: range) -> tuple[int, str] | None:
    """The first of these seeds that breaks under the mutation, and how."""
    with mutation.applied():
        for seed in seeds:
            if (fault := play_seed(seed).fault) is not None:
                return seed, fault
    return None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--most", type=int, default=400)
    options = parser.parse_args()
    be_quiet()
    for mutation in MUTATIONS:
        if options.only in mutation.name:
            print(f"{mutation.name}: {str(caught_by(mutation, range(1, options.most + 1)))[:260]}", flush=True)


if __name__ == "__main__":
    main()
