"""What a client may wish of a compaction, read from the body of its command."""

from typing import Final

from lodger_daemon.backends.core.compaction import FIRST_CUT_SHARE, INSTRUCTIONS_LIMIT_CHARACTERS, Mode, Options
from lodger_daemon.turns.contract import ConversationError
from lodger_tools.json_value import Json, JsonObject

_SETTINGS: Final = "compaction_settings"


def options_from(wishes: JsonObject) -> Options:
    """Fields stand in the body itself or in its `compaction_settings`; unknown ones are passed over.

    Raises: ConversationError naming the field that cannot be understood.
    """
    inner = wishes.get(_SETTINGS)
    fields = {**wishes, **(inner if isinstance(inner, dict) else {})}
    return Options(
        mode=_mode(fields.get("mode")),
        hidden_share=_share(fields.get("sliding_window_percentage")),
        instructions=_prompt(fields.get("prompt")),
    )


def _mode(value: Json) -> Mode:
    if value is None:
        return Mode.SLIDING_WINDOW
    if value in list(Mode):
        return Mode(str(value))
    raise ConversationError(f"mode must be one of {', '.join(Mode)}.")


def _share(value: Json) -> float:
    if value is None:
        return FIRST_CUT_SHARE
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1:
        return float(value)
    raise ConversationError("sliding_window_percentage must be a number above 0 and below 1.")


def _prompt(value: Json) -> str:
    if value is None:
        return ""
    if isinstance(value, str) and len(value) <= INSTRUCTIONS_LIMIT_CHARACTERS:
        return value
    raise ConversationError(f"prompt must be a text of at most {INSTRUCTIONS_LIMIT_CHARACTERS} characters.")
