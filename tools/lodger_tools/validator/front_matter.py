"""The `---` block at the head of a memory file: one `key: value` a line, nothing nested."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """What a file's head says. `fields` is None when the file has no block."""

    fields: dict[str, str] | None
    body: str
    faults: tuple[str, ...] = field(default=())


def read_front_matter(text: str) -> FrontMatter:
    """Split a file; never fails. A block that is not closed is a fault and counts as text."""
    normal = text.replace("\r\n", "\n")
    if not (normal.startswith("---\n") or normal == "---"):
        return FrontMatter(None, text)
    end = normal.find("\n---\n", 3)
    if end < 0:
        if not normal.endswith("\n---"):
            return FrontMatter(None, text, ("the block of front matter is not closed by a line ---",))
        end = len(normal) - 4
    fields: dict[str, str] = {}
    faults: list[str] = []
    for line in normal[4:end].split("\n") if end > 3 else ():
        _read_line(line, fields, faults)
    return FrontMatter(fields, normal[end + 5 :].lstrip("\n"), tuple(faults))


def _read_line(line: str, fields: dict[str, str], faults: list[str]) -> None:
    if not line.strip() or line.startswith("#"):
        return
    key, colon, value = line.partition(":")
    if not colon or key != key.strip() or not key:
        if line[:1] in {" ", "\t"} and fields:
            last = next(reversed(fields))
            fields[last] = f"{fields[last]} {line.strip()}".strip()
            return
        faults.append(f"front matter: {line[:60]!r} is not `key: value`")
        return
    if key in fields:
        faults.append(f"front matter: {key} stands there twice")
    fields[key] = _unquote(value.strip())


def _unquote(value: str) -> str:
    if value[:1] in {">", "|"} and len(value) <= 2:
        return ""
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value
