"""A shell command as the simple commands it is made of.

Rules are matched on words, never on the raw string (BEHAVIOUR.md D4). What cannot be read for certain is said to be
uncertain: it never matches an allow rule, while every command found anywhere in it is still held against deny rules.
"""

import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

COMMAND_LIMIT_BYTES: Final = 64 * 1024
"""A longer command is not analysed (so it asks): the parser's time grows with it."""

_PLAIN_STRUCTURE: Final = frozenset(
    {"program", "list", "pipeline", "redirected_statement", "negated_command", "comment", "file_redirect"}
)
_BETWEEN_COMMANDS: Final = frozenset({"&&", "||", ";", "|", "|&", "\n", "!"})
"""What may stand between and before simple commands that a rule is held against one by one."""
_JOINED_LINES: Final = re.compile(rb"(?:\S|\\\s)\\\n\S")
"""A word that goes on in the next line, an escaped blank its last character or not: the shell joins it, the parser
does not."""
_PLAIN_ESCAPES: Final = frozenset("*?[~{$`")
_ENDS_A_WORD: Final = re.compile(rb"(?:[^\\]|\\.)*?[ \t\n;&|<>()\"']", re.DOTALL)
"""What ends or quotes a word of the shell unless a backslash stands before it."""


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One program call. `certain` when its words are exactly what the shell will pass on."""

    words: tuple[str, ...]
    certain: bool
    literal: tuple[bool, ...]
    """Of each word, whether it is exactly what the shell will pass on."""
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
    certain = readable = (
        not root.has_error and not _JOINED_LINES.search(source) and not _divides_otherwise(root, source)
    )
    # (node, its command writes a file, it stands inside the words of a command)
    pending = [(root, False, False)]
    while pending:
        node, redirected, in_words = pending.pop()
        if node.type == "command":
            commands.append(_read_command(node, redirected))
            apart = _words_are_apart(node)
            certain = certain and apart
            readable = readable and apart and _names_its_program(node)
            in_words = True
        elif not in_words and not _is_plain(node):
            certain = False
        if node.type == "redirected_statement":
            # Of a list or pipeline it is the last command's; all of it counts, for who can tell.
            redirected = redirected or _writes_file(node)
            certain = certain and _has_body(node)
        pending.extend((child, redirected, in_words) for child in reversed(node.children))
    certain = certain and bool(commands) and all(command.certain for command in commands)
    return ParsedScript(tuple(commands), certain, readable)


def _divides_otherwise(root: "Node", source: bytes) -> bool:
    """Whether the parser divides words otherwise than the shell: it passed over something that is not white space to
    the shell (a backslash before a blank), or over white space within one word, or made one word of what the shell
    divides (`] ]`)."""
    position = 0
    pending = [root]
    while pending:
        node = pending.pop()
        if node.type == "``" or (node.type == "concatenation" and not _touch(node.children)):
            return True
        if node.type == "word" and _ENDS_A_WORD.match(node.text or b""):
            return True
        if node.children:
            pending.extend(reversed(node.children))
            continue
        if source[position : node.start_byte].replace(b"\\\n", b"").strip(b" \t\n"):
            return True
        position = max(position, node.end_byte)
    return bool(source[position:].replace(b"\\\n", b"").strip(b" \t\n"))


def _touch(nodes: "list[Node]") -> bool:
    return all(before.end_byte == after.start_byte for before, after in pairwise(nodes))


def _is_plain(node: "Node") -> bool:
    """Whether this node, outside the words of a command, leaves the script a list of pipelines."""
    if node.parent is not None and node.parent.type == "file_redirect":
        return True
    return node.type in (_PLAIN_STRUCTURE if node.is_named else _BETWEEN_COMMANDS)


def _read_command(node: "Node", redirected: bool) -> SimpleCommand:
    words: list[str] = []
    literal: list[bool] = []
    assigns, redirects = False, redirected
    for child in node.children:
        if child.type == "variable_assignment":
            assigns = True
        elif child.type in {"file_redirect", "herestring_redirect", "heredoc_redirect"}:
            redirects = True
        else:
            word = _literal(child)
            literal.append(word is not None)
            words.append(_text(child) if word is None else word)
    return SimpleCommand(tuple(words), all(literal), tuple(literal), assigns, redirects)


def _words_are_apart(node: "Node") -> bool:
    """Whether there is something between any two words: what touches is one word to the shell."""
    words = [child for child in node.children if not child.type.endswith("redirect")]
    return all(before.end_byte < after.start_byte for before, after in pairwise(words))


def _names_its_program(node: "Node") -> bool:
    return all(_literal(child) is not None for child in node.children if child.type == "command_name")


def _has_body(node: "Node") -> bool:
    """Whether a redirection is that of a command: alone it makes or empties a file, and names no program."""
    return any(child.is_named and not child.type.endswith("_redirect") for child in node.children)


def _writes_file(node: "Node") -> bool:
    for child in node.children:
        if child.type == "file_redirect":
            parts = child.children
            copies = len(parts) > 1 and parts[-2].type in {">&", "<&"} and parts[-1].type == "number"
            if not copies and not (parts and _text(parts[-1]) == "/dev/null"):
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
