"""One conversation's transcript in memory while it is in use: what the model sees, kept as it grows."""

from collections.abc import Iterable

from lodger_daemon.backends.core.compaction import estimate
from lodger_daemon.backends.core.reminders import last_shown
from lodger_daemon.backends.core.request_view import RequestView
from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage
from lodger_daemon.models.contract import ModelMessage
from lodger_tools.json_value import JsonObject


class LocalConversation:
    """Changed only after the same change is committed."""

    def __init__(self, in_context: Iterable[TranscriptMessage]) -> None:
        self._in_context: list[TranscriptMessage] = []
        self._view = RequestView()
        self._tokens = 0
        self._shown: JsonObject = {}
        self.replace(in_context)

    @property
    def tokens(self) -> int:
        """Of all messages the model sees, roughly."""
        return self._tokens

    @property
    def in_context(self) -> tuple[TranscriptMessage, ...]:
        return tuple(self._in_context)

    @property
    def shown(self) -> JsonObject:
        """The newest value of each reminder the model still sees."""
        return self._shown

    def add(self, message: TranscriptMessage) -> None:
        self._in_context.append(message)
        self._view.add(message)
        self._tokens += estimate(message)
        if message.kind is MessageKind.USER and isinstance(values := message.content.get("shown"), dict):
            self._shown = {**self._shown, **values}

    def replace(self, in_context: Iterable[TranscriptMessage]) -> None:
        """After a compaction."""
        self._in_context = list(in_context)
        self._tokens = sum(estimate(message) for message in self._in_context)
        self._view = RequestView(self._in_context)
        self._shown = last_shown(self._in_context)

    def messages(self) -> tuple[ModelMessage, ...]:
        return self._view.messages()
