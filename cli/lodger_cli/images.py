"""Pictures that go along with a message."""

import base64
from pathlib import Path
from typing import Final

from lodger_cli.terminal import Exit, fail
from lodger_cli.wire import Frame

IMAGE_LIMIT_BYTES: Final = 5 * 1024 * 1024
"""Of one picture: as much as providers take, and two of them fit into one frame of the wire."""
TOGETHER_LIMIT_BYTES: Final = 11 * 1024 * 1024
"""In base64 they have a third more, and the frame they travel in has 16 MiB."""
_MARKS: Final = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))


def read_images(files: tuple[str, ...]) -> tuple[Frame, ...]:
    """The parts of a message that show these files. Ends the command when one cannot be sent."""
    pictures = [(name, _read(name)) for name in files]
    if sum(len(data) for _, data in pictures) > TOGETHER_LIMIT_BYTES:
        fail(f"the pictures are larger than {TOGETHER_LIMIT_BYTES // 2**20} MiB together; send fewer", Exit.USAGE)
    return tuple(_part(name, data) for name, data in pictures)


def _read(name: str) -> bytes:
    try:
        with Path(name).open("rb") as file:
            data = file.read(IMAGE_LIMIT_BYTES + 1)
    except OSError as error:
        fail(f"the picture {name} cannot be read: {error.strerror}", Exit.USAGE)
    if len(data) > IMAGE_LIMIT_BYTES:
        fail(f"the picture {name} is larger than {IMAGE_LIMIT_BYTES // 2**20} MiB; make it smaller", Exit.USAGE)
    return data


def _part(name: str, data: bytes) -> Frame:
    kind = next((kind for mark, kind in _MARKS if data.startswith(mark)), "")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if not kind:
        fail(f"{name} is no picture that models take (PNG, JPEG, GIF or WebP)", Exit.USAGE)
    source = {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode()}
    return {"type": "image", "source": source}
