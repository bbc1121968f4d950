"""What happens in one run, decided by its seed before it begins."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from simulation.world import Weather, World

if TYPE_CHECKING:
    from simulation.run_seed import Run


OTHER: Final = "conv-other"
SMALL_WINDOW: Final = 10_000
"""Below this texts are long enough to be compacted."""


@dataclass(frozen=True)
class Act:
    at_s: float
    name: str
    do: "Callable[[Run], None]"


@dataclass(frozen=True)
class ClientPlan:
    batches: bool
    questions: bool
    tool: bool
    by_hub: bool
    asks_together: bool


@dataclass(frozen=True)
class Plan:
    conversations: list[str]
    clients: list[ClientPlan]
    acts: list[Act]
    length_s: float
    has_hub: bool


def make_plan(world: World) -> Plan:
    chance = world.chance
    conversations = ["default", OTHER] if chance.random() < 0.3 else ["default"]
    has_hub = chance.random() < 0.4
    clients = [
        ClientPlan(
            chance.random() < 0.4,
            n == 0 or chance.random() < 0.8,
            chance.random() < 0.3,
            has_hub and chance.random() < 0.7,
            chance.random() < 0.5,
        )
        for n in range(chance.choice((1, 2, 2, 3)))
    ]
    length_s = chance.choice((10.0, 40.0, 120.0))
    world.weather = Weather(
        model_fails=chance.choice((0.0, 0.1, 0.35)),
        model_odd=chance.choice((0.0, 0.1, 0.3)),
        calls_tools=chance.choice((0.3, 0.6, 0.9)),
        box_dies=chance.choice((0.0, 0.0, 0.15)),
        slow_disk=chance.choice((0.0, 0.0, 0.2)),
        answers_questions=chance.choice((1.0, 0.5)),
        turn_tokens=chance.choice((None, None, None, 2_000, 20_000)),
        window_tokens=chance.choice((100_000, 100_000, 3_000, 3_600)),
    )
    if world.weather.window_tokens < SMALL_WINDOW:
        world.weather.calls_tools, world.weather.turn_tokens = 0.8, None
        conversations = ["default"]
    acts = [*_says(world, conversations, len(clients), length_s)]
    for make, most in (
        (_crash, 4),
        (_freeze, 1),
        (_disk, 2),
        (_clock, 2),
        (_cut, 4),
        (_person, 6),
        (_elsewhere, 2),
        (_boxes, 1),
        (_notices, 1),
        *(((_hub, 3),) if has_hub else ()),
    ):
        acts += [
            make(world, conversations, len(clients), chance.uniform(0.0, length_s))
            for _ in range(chance.randrange(most + 1))
        ]
    acts.sort(key=lambda act: act.at_s)
    return Plan(conversations, clients, acts, length_s, has_hub)


def _says(world: World, conversations: list[str], clients: int, length_s: float) -> list[Act]:
    chance = world.chance
    return [
        _say(world, conversations, clients, chance.uniform(0.0, length_s * 0.8), n)
        for n in range(chance.randrange(*((2, 9) if world.weather.window_tokens > SMALL_WINDOW else (6, 13))))
    ]


def _say(world: World, conversations: list[str], clients: int, at_s: float, number: int) -> Act:
    chance = world.chance
    conversation, who = chance.choice(conversations), chance.randrange(clients)
    message_id = f"cm-{number}"
    lengths = (0, 3, 200) if world.weather.window_tokens > SMALL_WINDOW else (3, 80, 150, 300)
    text = f"message {number} " + "and more " * chance.choice(lengths)
    options: dict[str, object] = {}
    if chance.random() < 0.2:
        options["delivery"] = "turn_end"
    if chance.random() < 0.1:
        options["client_tool_allowlist"] = ["Read"]
    twice = chance.random() < 0.15

    def do(run: "Run") -> None:
        run.sent[message_id] = (conversation, text)
        run.clients[who].say(conversation, text, message_id, **options)
        if twice:
            # The same message from another window of the same person.
            run.clients[(who + 1) % clients].say(conversation, text, message_id, **options)

    return Act(at_s, f"client{who} says {message_id}", do)


def _crash(world: World, conversations: list[str], clients: int, at_s: float) -> Act:
    callbacks = 1 + int(world.chance.expovariate(1 / 150))
    return Act(at_s, f"kill after {callbacks} callbacks", lambda run: run.crash_after(callbacks))


def _freeze(world: World, conversations: list[str], clients: int, at_s: float) -> Act:
    for_s, replaced = world.between(0.5, 900.0), world.chance.random() < 0.6
    return Act(at_s, "freeze", lambda run: run.freeze(for_s, replaced))


def _disk(world: World, conversations: list[str], clients: int, at_s: float) -> Act:
    for_s = world.between(0.5, 60.0)
    return Act(at_s, "full disk", lambda run: run.fill_disk(for_s))


def _clock(world: World, conversations: list[str], clients: int, at_s: float) -> Act:
    by_s = world.chance.choice((-3600.0, 86_400.0, 3600.0, -86_400.0, 370_000_000.0, -0.5))
    slept = world.chance.random() < 0.3

    def do(run: "Run") -> None:
        run.world.note("clock", f"the wall clock steps by {by_s:g} s")
        if slept:
            run.world.note("clock", "and the monotonic clock by an hour")
            run.world.loop.skip(3600.0)
            run.world.jumped_s = run.world.loop.time()
        run.world.wall_offset_s += by_s

    return Act(at_s, "clock step", do)


def _cut(world: World, conversations: list[str], clients: int, at_s: float) -> Act:
    who, silent = world.chance.randrange(clients), world.chance.random() < 0.3

    def do(run: "Run") -> None:
        client = run.clients[who]
        if silent:
            client.go_silent()
        else:
            client.cut()

    return Act(at_s, f"cut client{who}", do)


def _person(world: World, conversations: list[str], clients: int, at_s: float) -> Act:
    chance = world.chance
    who, conversation, what = chance.randrange(clients), chance.choice(conversations), chance.randrange(9)
    mode = chance.choice(("standard", "strict", "unrestricted", "acceptEdits"))

    def do(run: "Run") -> None:
        client = run.clients[who]
        run.world.note(client.name, f"does {what}")
        match what:
            case 0 | 1 | 2:
                client.abort(conversation)
            case 3:
                client.remove_one(conversation)
            case 4:
                client.resume_queue(conversation)
            case 5:
                client.change_mode(conversation, mode)
            case 6:
                client.compact(conversation)
            case 7:
                client.recompile(conversation)
            case _:
                client.answer(conversation, f"perm-c{1 + run.world.chance.randrange(2)}")

    return Act(at_s, f"client{who} does {what}", do)


def _elsewhere(world: World, conversations: list[str], clients: int, at_s: float) -> Act:
    return Act(at_s, "memory moves elsewhere", lambda run: run.memory.elsewhere())


def _boxes(world: World, conversations: list[str], clients: int, at_s: float) -> Act:
    return Act(at_s, "boxes die", lambda run: run.boxes.die())


def _hub(world: World, conversations: list[str], clients: int, at_s: float) -> Act:
    what = world.chance.randrange(3)

    def do(run: "Run") -> None:
        line = run.daemon.uplink_line if run.daemon is not None else None
        if what == 0:
            assert run.hub is not None
            run.hub.crash()
        elif line is not None:
            run.world.note("hub", "its line to the daemon is cut" if what == 1 else "its line falls silent")
            if what == 1:
                line.cut()
            else:
                line.silent = True

    return Act(at_s, "trouble with the hub", do)


def _notices(world: World, conversations: list[str], clients: int, at_s: float) -> Act:
    """Background work that has ended; now and then so much that the queue has to drop some."""
    conversation, count = (
        world.chance.choice(conversations),
        world.chance.choice((1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 110)),
    )
    return Act(at_s, f"{count} notices", lambda run: run.give_notice(conversation, count))
