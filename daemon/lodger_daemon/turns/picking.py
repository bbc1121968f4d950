"""Questions about several things of one kind, hosts or ports: a person may allow some, and some of them for always."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from lodger_daemon.turns.contract import Allow, Answer
from lodger_daemon.turns.core.events import PermissionSuggestion, StatusNote
from lodger_daemon.turns.desk import Desk
from lodger_daemon.turns.services import finish_regardless

T = TypeVar("T", int, str)


def suggestions(offered: Iterable[T], words: Callable[[T], str]) -> tuple[PermissionSuggestion, ...]:
    """One to allow each thing for always."""
    return tuple(PermissionSuggestion(_suggestion_id(one), words(one)) for one in offered)


def allowed(given: Answer, asked: Sequence[T], name: str) -> frozenset[T]:
    """A person may take things out of the question, where they stand as the list of that name, and put none in."""
    if not isinstance(given, Allow):
        return frozenset()
    if given.updated_input is None:
        return frozenset(asked)
    kept = given.updated_input.get(name)
    return frozenset(one for one in asked if isinstance(kept, list) and one in kept)


async def keep_for_always(
    desk: Desk,
    given: Answer,
    among: Sequence[T],
    add: Callable[[Sequence[T]], Awaitable[None]],
    rule: Callable[[T], str],
    of_what: str,
) -> None:
    """Have those saved that the person wants allowed for always, to its end whatever happens to the one who asked.

    Args:
        among: what was allowed.
        add: saves them, or raises and changes nothing.
        rule: how the rule for one is written down.
        of_what: which list it is, in words.
    """
    wanted = [one for one in among if isinstance(given, Allow) and _suggestion_id(one) in given.suggestion_ids]
    if wanted:
        await finish_regardless(_keep(desk, wanted, add, rule, of_what))


async def _keep(
    desk: Desk,
    wanted: Sequence[T],
    add: Callable[[Sequence[T]], Awaitable[None]],
    rule: Callable[[T], str],
    of_what: str,
) -> None:
    try:
        await add(wanted)
    except Exception as error:  # noqa: BLE001 - said just below
        # Whatever keeps the list from growing, the answer that wanted it still holds.
        desk.publish(StatusNote(f"The list of {of_what} could not be changed: {error}", "warning"))
        return
    for one in wanted:
        await desk.services.questions.rule_saved(desk.key, rule(one))


def _suggestion_id(one: object) -> str:
    return f"always-{one}"
