"""One conversation's transcript in memory while it is in use: what the model sees, kept as it grows."""

from collections.abc import Iterable
from typing import Final

from lodger_daemon.backends.core.budget import Calibration, estimate, estimate_all, reasoning_tokens
from lodger_daemon.backends.core.elision import Elision, as_shown, elision_of
from lodger_daemon.backends.core.reminders import last_shown
from lodger_daemon.backends.core.request_view import RequestView
from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage
from lodger_daemon.models.contract import ModelMessage
from lodger_tools.json_value import JsonObject

FRUITLESS_GROWTH: Final = 1.1
"""How much longer a conversation must have become before it is tried again."""


class LocalConversation:
    """Changed only after the same change is committed."""

    def __init__(self, in_context: Iterable[TranscriptMessage]) -> None:
        self._in_context: list[TranscriptMessage] = []
        self._view = RequestView()
        self._tokens = 0
        self._reasoning = 0
        self._shown: JsonObject = {}
        self._elision = Elision()
        self._calibration = ("", Calibration())
        self._fruitless_at = 0
        self.replace(in_context)

    @property
    def tokens(self) -> int:
        """Of all messages the model sees, as estimated, with the reasoning of the turn that goes on."""
        return self._tokens + self._reasoning

    @property
    def in_context(self) -> tuple[TranscriptMessage, ...]:
        """As the model is shown them: without what a compaction left out."""
        return tuple(self._in_context)

    @property
    def elision(self) -> Elision:
        return self._elision

    @property
    def shown(self) -> JsonObject:
        """The newest value of each reminder the model still sees."""
        return self._shown

    def calibration(self, handle: str) -> Calibration:
        """What is known of the estimates here with this model; begun anew when the model changes."""
        return self._calibration[1] if self._calibration[0] == handle else Calibration()

    def calibrate(self, handle: str, calibration: Calibration) -> None:
        self._calibration = (handle, calibration)

    @property
    def worth_compacting(self) -> bool:
        """False for a while after a summary that made nothing shorter: each try costs a call of the model."""
        return self._tokens >= self._fruitless_at * FRUITLESS_GROWTH

    def compaction_was_fruitless(self) -> None:
        self._fruitless_at = self._tokens

    def add(self, message: TranscriptMessage) -> None:
        self._in_context.append(message)
        self._view.add(message)
        self._tokens += estimate(message)
        self._reasoning = 0 if message.kind is MessageKind.USER else self._reasoning + reasoning_tokens(message)
        if message.kind is MessageKind.USER and isinstance(values := message.content.get("shown"), dict):
            self._shown = {**self._shown, **values}

    def replace(self, in_context: Iterable[TranscriptMessage]) -> None:
        """After a compaction, and as a conversation comes into use."""
        messages = tuple(in_context)
        self._fruitless_at = 0
        is_compacted = bool(messages) and messages[0].kind is MessageKind.SUMMARY
        self._elision = elision_of(messages[0]) if is_compacted else Elision()
        self._in_context = [as_shown(message, self._elision) for message in messages]
        self._tokens = estimate_all(self._in_context)
        users = [index for index, message in enumerate(messages) if message.kind is MessageKind.USER]
        turn = messages[users[-1] :] if users else messages
        self._reasoning = sum(reasoning_tokens(message) for message in turn)
        self._view = RequestView(self._in_context)
        self._shown = last_shown(self._in_context)

    def messages(self) -> tuple[ModelMessage, ...]:
        return self._view.messages()
