"""A shell command as the simple commands it is made of.

Rules are matched on words, never on the raw string (BEHAVIOUR.md D4). What cannot be read for certain is said to be
uncertain: it never matches an allow rule, while every command found anywhere in it is still held against deny rules.
"""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

COMMAND_LIMIT_BYTES: Final = 64 * 1024
"""A longer command is not analysed (so it asks): the parser's time grows with it."""

_PLAIN_STRUCTURE: Final = frozenset(
    {"program", "list", "pipeline", "redirected_statement", "negated_command", "comment", "file_redirect"}
)
_PLAIN_ESCAPES: Final = frozenset("*?[~{$`")


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One program call. `certain` when its words are exactly what the shell will pass on."""

    words: tuple[str, ...]
    certain: bool
    assigns: bool = False
    """Variables are set for it, which can change what it does."""
    redirects: bool = False
    """Its output goes to a file."""


@dataclass(frozen=True, slots=True)
class ParsedScript:
    """Every simple command of a script, also those inside loops and substitutions."""

    commands: tuple[SimpleCommand, ...]
    certain: bool
    """Only lists and pipelines of certain commands: what an allow rule may match."""
    readable: bool = True
    """The text could be taken apart, and every program in it is named by the text itself. What is not readable cannot
    be held against deny and ask rules."""


@cache
def _parser() -> "Parser":
    # Imported on first use: 38 ms that a daemon without rules never needs.
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def parse_script(text: str) -> ParsedScript:
    """Take a `bash -c` text apart. Never raises; what is not understood is uncertain."""
    try:
        source = text.encode()
    except UnicodeEncodeError:
        return ParsedScript((), certain=False, readable=False)
    if len(source) > COMMAND_LIMIT_BYTES or "\0" in text:
        return ParsedScript((), certain=False, readable=False)
    root = _parser().parse(source).root_node
    commands: list[SimpleCommand] = []
    certain = readable = not root.has_error
    # (node, its command writes a file, it stands inside the words of a command)
    pending = [(root, False, False)]
    while pending:
        node, redirected, in_words = pending.pop()
        if node.type == "command":
            commands.append(_read_command(node, redirected))
            readable = readable and _names_its_program(node)
            in_words = True
        elif not in_words and not _is_plain(node):
            certain = False
        redirected = node.type == "redirected_statement" and _writes_file(node)
        pending.extend((child, redirected, in_words) for child in reversed(node.children))
    certain = certain and bool(commands) and all(command.certain for command in commands)
    return ParsedScript(tuple(commands), certain, readable)


def _is_plain(node: "Node") -> bool:
    """Whether this node, outside the words of a command, leaves the script a list of pipelines."""
    if not node.is_named:
        return node.type != "&"
    return node.type in _PLAIN_STRUCTURE or (node.parent is not None and node.parent.type == "file_redirect")


def _read_command(node: "Node", redirected: bool) -> SimpleCommand:
    words: list[str] = []
    certain, assigns, redirects = True, False, redirected
    for child in node.children:
        if child.type == "variable_assignment":
            assigns = True
        elif child.type in {"file_redirect", "herestring_redirect", "heredoc_redirect"}:
            redirects = True
        else:
            word = _literal(child)
            certain = certain and word is not None
            words.append(_text(child) if word is None else word)
    return SimpleCommand(tuple(words), certain, assigns, redirects)


def _names_its_program(node: "Node") -> bool:
    return all(_literal(child) is not None for child in node.children if child.type == "command_name")


def _writes_file(node: "Node") -> bool:
    for child in node.children:
        if child.type == "file_redirect":
            target = child.children[-1]
            if not (target.type == "number" or _text(target) == "/dev/null"):
                return True
        elif child.type in {"heredoc_redirect", "herestring_redirect"}:
            return True
    return False


def _literal(node: "Node") -> str | None:
    """The word the shell will pass on, or None when that depends on anything but this text."""
    match node.type:
        case "command_name":
            return _literal(node.children[0]) if len(node.children) == 1 else None
        case "number":
            return _text(node)
        case "word":
            return _unescape(_text(node))
        case "raw_string":
            return _text(node)[1:-1]
        case "ansi_c_string":
            inside = _text(node)[2:-1]
            return None if "\\" in inside else inside
        case "string":
            parts = [child for child in node.children if child.type != '"']
            if any(part.type != "string_content" for part in parts):
                return None
            inside = _text(node)[1:-1]
            return None if "\\" in inside or "$" in inside or "`" in inside else inside
        case "concatenation":
            pieces = [_literal(child) for child in node.children]
            return None if any(piece is None for piece in pieces) else "".join(piece or "" for piece in pieces)
        case _:
            return None


def _unescape(word: str) -> str | None:
    out: list[str] = []
    characters = iter(word)
    for character in characters:
        if character == "\\":
            out.append(next(characters, ""))
        elif character in _PLAIN_ESCAPES:
            return None
        else:
            out.append(character)
    return "".join(out)


def _text(node: "Node") -> str:
    return (node.text or b"").decode("utf-8", "replace")


_WRAPPERS: Final = {
    # wrapper: options of it that take a value
    "env": frozenset({"-u", "--unset", "-C", "--chdir", "-S", "--split-string"}),
    "command": frozenset(),
    "builtin": frozenset(),
    "exec": frozenset({"-a"}),
    "nohup": frozenset(),
    "sudo": frozenset({"-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T"}),
    "doas": frozenset({"-u", "-C"}),
    "time": frozenset({"-o", "-f"}),
    "timeout": frozenset({"-s", "-k", "--signal", "--kill-after"}),
    "nice": frozenset({"-n"}),
    "ionice": frozenset({"-c", "-n", "-p"}),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    "setsid": frozenset(),
    "xargs": frozenset({"-I", "-n", "-P", "-L", "-d", "-a", "-E", "-s"}),
    "busybox": frozenset(),
    "eval": frozenset(),
}
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh"})


def readings_for_deny(command: SimpleCommand) -> tuple[tuple[str, ...], ...]:
    """Every way this command may be meant: as written, by base name, and without each known wrapper.

    A deny rule that matches any of them denies. Wrapped shells are read one level deep.
    """
    readings: list[tuple[str, ...]] = []
    words = command.words
    while words:
        words = (words[0].rsplit("/", 1)[-1], *words[1:])
        readings.append(words)
        if words[0] in _SHELLS:
            script = script_in(words)
            if script is not None:
                readings.extend(found.words for found in parse_script(script).commands)
            break
        if not unwraps(words[0]):
            break
        words = unwrap(words)
    return tuple(readings)


def unwraps(program: str) -> bool:
    """Whether this program runs another one that its own words name."""
    return program in _WRAPPERS


def script_in(words: tuple[str, ...]) -> str | None:
    """What a shell is told to run by `-c`, which may stand among other options (`-lc`)."""
    for index, word in enumerate(words[1:-1], 1):
        if word.startswith("-") and not word.startswith("--") and "c" in word:
            return words[index + 1]
    return None


def unwrap(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words of the program that a wrapper, given by its base name, runs."""
    takes_value = _WRAPPERS[words[0]]
    rest = words[1:]
    while rest and (rest[0].startswith("-") or "=" in rest[0]):
        skip = 2 if rest[0] in takes_value else 1
        if rest[0] in {"-S", "--split-string"} and len(rest) > 1:
            return (*rest[1].split(), *rest[2:])
        rest = rest[skip:]
    if words[0] == "timeout" and rest:
        rest = rest[1:]
    return rest
