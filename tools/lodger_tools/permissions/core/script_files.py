"""Which files a command runs as scripts: what a person's word about the command is bound to (ATTACKS.md A7).

Read from the words alone, as far as these tell. A command that hides which file it runs is not bound to it; it is asked
about as it stands.
"""

import posixpath
from typing import Final

from lodger_tools.permissions.core.shell import ParsedScript, SimpleCommand, parse_script, script_in, unwrap, unwraps

FILES_LIMIT: Final = 32
_INTERPRETERS: Final = frozenset(
    {
        "sh",
        "bash",
        "dash",
        "zsh",
        "ksh",
        "fish",
        "python",
        "python3",
        "node",
        "deno",
        "bun",
        "perl",
        "ruby",
        "php",
        "lua",
    }
    | {"awk", "gawk", "mawk", "source", ".", "tclsh", "Rscript", "osascript", "pwsh"}
)
_NAMED_BY_OPTION: Final = {"make": ("-f", "--file", "--makefile"), "awk": ("-f",), "gawk": ("-f",), "mawk": ("-f",)}
_PROJECT_FILES: Final = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "npm": ("package.json",),
    "pnpm": ("package.json",),
    "yarn": ("package.json",),
    "just": ("justfile", "Justfile", ".justfile"),
}
_WITHOUT_FILE: Final = frozenset({"-c", "-e", "-m", "--eval", "--version", "--help"})
"""After these an interpreter runs no file of its operands."""


def script_files(script: ParsedScript) -> tuple[str, ...]:
    """Paths as the command names them, each also below every folder the script changes to; at most 32."""
    folders = [""]
    found: dict[str, None] = {}
    feeds_interpreter = any(_reads_program_from_input(command) for command in script.commands)
    for command in script.commands:
        if command.words[:1] in (("cd",), ("pushd",)) and len(command.words) > 1:
            folders.append(command.words[-1])
            continue
        names = _files_of(command.words)
        if feeds_interpreter:
            names = (*names, *(word for word in command.words[1:] if not word.startswith("-")))
        for name in names:
            for folder in folders:
                found.setdefault(posixpath.join(folder, name))
    return tuple(name for name in found if name and "\0" not in name)[:FILES_LIMIT]


def _files_of(words: tuple[str, ...]) -> tuple[str, ...]:
    found: list[str] = []
    while words:
        program = posixpath.basename(words[0])
        if "/" in words[0]:
            found.append(words[0])
        found += _PROJECT_FILES.get(program, ())
        found += _after_options(words[1:], _NAMED_BY_OPTION.get(program, ()))
        if program in _INTERPRETERS:
            inner = script_in((program, *words[1:]))
            if inner is not None:
                found += (name for command in parse_script(inner).commands for name in _files_of(command.words))
            elif operand := _first_operand(words[1:]):
                found.append(operand)
        if not unwraps(program):
            break
        words = unwrap((program, *words[1:]))
    return tuple(found)


def _first_operand(words: tuple[str, ...]) -> str | None:
    for word in words:
        if word in _WITHOUT_FILE:
            return None
        if not word.startswith("-"):
            return word
    return None


def _after_options(words: tuple[str, ...], options: tuple[str, ...]) -> list[str]:
    found = [words[index + 1] for index, word in enumerate(words[:-1]) if word in options]
    found += [word.partition("=")[2] for word in words if word.partition("=")[0] in options and "=" in word]
    return found


def _reads_program_from_input(command: SimpleCommand) -> bool:
    program = posixpath.basename(command.words[0]) if command.words else ""
    return (
        program in _INTERPRETERS
        and all(word.startswith("-") for word in command.words[1:])
        and not (_WITHOUT_FILE & set(command.words))
    )
