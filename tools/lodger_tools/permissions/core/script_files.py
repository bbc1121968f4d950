"""Which files a command runs as scripts: what a person's word about the command is bound to (ATTACKS.md A7).

Read from the words alone, as far as these tell. A command that hides which file it runs is not bound to it; it is asked
about as it stands.
"""

import posixpath
import re
from typing import Final

from lodger_tools.permissions.core.shell import ParsedScript, SimpleCommand, parse_script
from lodger_tools.permissions.core.wrappers import inner_script, layers

FILES_LIMIT: Final = 32
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish", "source", "."})
_INTERPRETERS: Final = _SHELLS | frozenset(
    {"python", "python3", "node", "deno", "bun", "perl", "ruby", "php", "lua", "tclsh", "Rscript", "osascript", "pwsh"}
)
_SCRIPT_NAME: Final = re.compile(r"\.(?:sh|bash|zsh|fish|py|js|mjs|cjs|ts|pl|rb|php|lua|tcl|R|mk)\Z")
"""Also as a later operand such a file is more likely run than worked on: `node --require hook.js app.js`."""
_NAMED_BY_OPTION: Final = {"make": ("-f", "--file", "--makefile"), "awk": ("-f",), "gawk": ("-f",), "mawk": ("-f",)}
_PROJECT_FILES: Final = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "npm": ("package.json",),
    "pnpm": ("package.json",),
    "yarn": ("package.json",),
    "just": ("justfile", "Justfile", ".justfile"),
}
_WITHOUT_FILE: Final = frozenset({"-c", "-e", "-m", "-p", "-r", "--eval", "--print", "--version", "--help"})
"""With these an interpreter that is no shell runs no file that its first operand names."""


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
    for layer in layers(words):
        program, named = layer[0], words[len(words) - len(layer)]
        if "/" in named:
            found.append(named)
        found += _PROJECT_FILES.get(program, ())
        found += _after_options(layer[1:], _NAMED_BY_OPTION.get(program, ()))
        inner = inner_script(layer)
        if inner is not None:
            found += (name for command in parse_script(inner).commands for name in _files_of(command.words))
        elif program in _INTERPRETERS:
            found += _operands_run(program, layer[1:])
    return tuple(found)


def _operands_run(program: str, words: tuple[str, ...]) -> list[str]:
    operands = [word for word in words if not word.startswith("-")]
    first = operands[:1] if program in _SHELLS or not _WITHOUT_FILE & set(words) else []
    return [*first, *(word for word in operands if word not in first and _SCRIPT_NAME.search(word))]


def _after_options(words: tuple[str, ...], options: tuple[str, ...]) -> list[str]:
    found = [words[index + 1] for index, word in enumerate(words[:-1]) if word in options]
    found += [word.partition("=")[2] for word in words if word.partition("=")[0] in options and "=" in word]
    return found


def _reads_program_from_input(command: SimpleCommand) -> bool:
    program = posixpath.basename(command.words[0]) if command.words else ""
    if program not in _INTERPRETERS or any(not word.startswith("-") for word in command.words[1:]):
        return False
    return program in _SHELLS or not _WITHOUT_FILE & set(command.words)
