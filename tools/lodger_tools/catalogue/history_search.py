"""The tool by which the model looks up what was said earlier, also what compaction has hidden from it. Pure.

It reads the daemon's own records of this agent's conversations, so it runs in no box and needs nobody's permission.
"""

from typing import Final

from lodger_tools.catalogue.arguments import BadArguments
from lodger_tools.json_value import JsonObject

HISTORY_TOOL: Final = "SearchMessages"
LIMIT: Final = 10
LARGEST_LIMIT: Final = 50

DESCRIPTION: Final = (
    "Search your own earlier conversations on this machine, word for word, also what was replaced by a summary. Give a "
    'query (all words must occur; "two words" side by side, begin* for the beginning of a word, -word to leave out), '
    "or a message_id to read one message whole."
)
PARAMETERS: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "message_id": {"type": "string", "description": "instead of a query"},
        "before": {"type": "integer", "description": "as told by the page before, for older results"},
        "limit": {"type": "integer", "description": f"results, {LIMIT} if absent, {LARGEST_LIMIT} at most"},
    },
}


def check_history_search(arguments: JsonObject) -> None:
    """Raises: BadArguments with words for the model."""
    named = [name for name in ("query", "message_id") if arguments.get(name)]
    if len(named) != 1 or not isinstance(arguments[named[0]], str):
        raise BadArguments(f"{HISTORY_TOOL} needs either query or message_id, as a text.")
    for name, largest in (("before", 2**62), ("limit", LARGEST_LIMIT)):
        value = arguments.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= largest:
            raise BadArguments(f"{HISTORY_TOOL}: {name} must be a whole number from 1 to {largest}.")
