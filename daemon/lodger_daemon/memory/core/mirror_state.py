"""What is known of an agent's mirror, as it is stored beside its memory."""

import json
from dataclasses import asdict, dataclass
from typing import Final

MAX_STATE_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class MirrorState:
    url: str = ""
    """Of the mirror that this is about; another one has to be told everything again."""
    head: str | None = None
    """What its main is, as far as we know."""
    at_s: float | None = None
    """Of the last try."""
    fault: str = ""
    """Why it failed."""
    failures: int = 0
    """Failed tries in a row."""


def mirror_to_json(state: MirrorState) -> str:
    return json.dumps(asdict(state), ensure_ascii=True)


def mirror_from_json(text: str, url: str) -> MirrorState:
    """A state that cannot be read, or is about another mirror, counts as none: then the next try tells."""
    try:
        stored = json.loads(text)
        head, at_s = stored["head"], stored["at_s"]
        state = MirrorState(
            url=str(stored["url"]),
            head=None if head is None else str(head),
            at_s=None if at_s is None else float(at_s),
            fault=str(stored["fault"]),
            failures=int(stored["failures"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return MirrorState()
    return state if state.url == url else MirrorState()
