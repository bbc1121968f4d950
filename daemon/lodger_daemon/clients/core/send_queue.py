"""What waits to be sent to one client: order, merging and the limits of PROTOCOL.md 2.5."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from lodger_daemon.clients.core.bodies import Body, Merge, TextFragment
from lodger_daemon.clients.core.deltas import merge_text
from lodger_daemon.identity import ConversationKey
from lodger_daemon.turns.contract import ConversationSnapshot
from lodger_protocol.limits import LARGE_FRAME_LIMIT_BYTES

MERGE_ABOVE_FRAMES: Final = 32
"""A client that keeps up has fewer frames waiting and sees every status; one that lags sees the newest only."""


@dataclass(slots=True)
class DeviceRequest:
    """The device status is due; it is read when its turn comes, so that it is never older than what follows it."""

    key: ConversationKey
    force: bool
    snapshot: ConversationSnapshot | None = None


@dataclass(slots=True)
class TextRun:
    """Consecutive fragments of one message, sent as one."""

    key: ConversationKey
    first: Body
    fragments: list[TextFragment] = field(default_factory=list)

    def as_body(self) -> Body:
        if len(self.fragments) == 1:
            return self.first
        first, last = self.fragments[0], self.fragments[-1]
        middle = "".join(fragment.text for fragment in self.fragments[1:])
        whole = TextFragment(last.event_number, last.otid, last.delta, middle)
        return merge_text(self.key, first, whole)


Waiting: TypeAlias = Body | bytes | DeviceRequest | TextRun


class SendQueue:
    """Frames in the order they will be sent."""

    def __init__(self, frame_limit: int, byte_limit: int) -> None:
        self._frame_limit = frame_limit
        self._byte_limit = byte_limit
        self._waiting: deque[Waiting] = deque()
        self._size_bytes = 0
        self._large: bytes | None = None
        self.batch_deltas = False
        """Set once the client has said that it takes fragments merged."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def too_many_frames(self) -> bool:
        return len(self._waiting) > self._frame_limit

    @property
    def too_many_bytes(self) -> bool:
        return self._size_bytes > self._byte_limit

    @property
    def has_large(self) -> bool:
        """Whether an answer waits that `add_large` took."""
        return self._large is not None

    def add_response(self, frame: bytes) -> None:
        self._append(frame, len(frame))

    def add_large(self, frame: bytes) -> None:
        """An answer that may be larger than all that may wait otherwise: one at a time does not count."""
        if self._large is None and len(frame) <= LARGE_FRAME_LIMIT_BYTES:
            self._large = frame
            self._append(frame, 0)
        else:
            self.add_response(frame)

    def add_body(self, body: Body) -> None:
        if body.fragment is not None and self.batch_deltas:
            self._add_fragment(body, body.fragment)
            return
        if body.merge is Merge.NEWEST and len(self._waiting) >= MERGE_ABOVE_FRAMES:
            self._drop_older(body)
        self._append(body, len(body.head))

    def add_device(self, key: ConversationKey, force: bool, snapshot: ConversationSnapshot | None = None) -> None:
        last = self._waiting[-1] if self._waiting else None
        if isinstance(last, DeviceRequest) and last.key == key:
            last.force = last.force or force
            last.snapshot = snapshot
            return
        if len(self._waiting) >= MERGE_ABOVE_FRAMES:
            for index, item in enumerate(self._waiting):
                if isinstance(item, DeviceRequest) and item.key == key:
                    force = force or item.force
                    del self._waiting[index]
                    break
        self._append(DeviceRequest(key, force, snapshot), 0)

    def take(self) -> Body | bytes | DeviceRequest | None:
        """The next frame, or None."""
        if not self._waiting:
            return None
        item = self._waiting.popleft()
        match item:
            case bytes() if item is self._large:
                self._large = None
            case bytes():
                self._size_bytes -= len(item)
            case Body():
                self._size_bytes -= len(item.head)
            case TextRun():
                self._size_bytes -= len(item.first.head) + sum(len(fragment.text) for fragment in item.fragments[1:])
                return item.as_body()
            case DeviceRequest():
                pass
        return item

    def _append(self, item: Waiting, size_bytes: int) -> None:
        self._waiting.append(item)
        self._size_bytes += size_bytes

    def _add_fragment(self, body: Body, fragment: TextFragment) -> None:
        last = self._waiting[-1] if self._waiting else None
        if isinstance(last, TextRun) and last.key == body.key and last.fragments[0].otid == fragment.otid:
            last.fragments.append(fragment)
            self._size_bytes += len(fragment.text)
            return
        self._append(TextRun(body.key, body, [fragment]), len(body.head))

    def _drop_older(self, body: Body) -> None:
        for index, item in enumerate(self._waiting):
            same = isinstance(item, Body) and item.merge is Merge.NEWEST and item.type == body.type
            if same and isinstance(item, Body) and item.key == body.key:
                self._size_bytes -= len(item.head)
                del self._waiting[index]
                return
