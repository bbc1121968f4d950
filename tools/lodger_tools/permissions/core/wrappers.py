"""Programs that run another program: what a command comes to once they are taken off.

For deny and ask rules, which are matched in the widest way, and to know whether a command says itself what it runs.
"""

import posixpath
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from lodger_tools.permissions.core.shell import ParsedScript, SimpleCommand, parse_script


@dataclass(frozen=True, slots=True)
class _Wrapper:
    valued: frozenset[str] = frozenset()
    """Options that take the next word as their value."""
    operands: int = 0
    """Operands of its own before the program."""


def _wrapper(valued: str = "", operands: int = 0) -> _Wrapper:
    return _Wrapper(frozenset(valued.split()), operands)


_WRAPPERS: Final = {
    "env": _wrapper("-u --unset -C --chdir"),
    "command": _wrapper(),
    "builtin": _wrapper(),
    "exec": _wrapper("-a"),
    "nohup": _wrapper(),
    "sudo": _wrapper("-u -g -h -p -C -D -R -T --user --group --host --prompt --chdir --chroot"),
    "doas": _wrapper("-u -C"),
    "time": _wrapper("-o -f --output --format"),
    "timeout": _wrapper("-s -k --signal --kill-after", operands=1),
    "nice": _wrapper("-n --adjustment"),
    "ionice": _wrapper("-c -n -p -P -u --class --classdata"),
    "stdbuf": _wrapper("-i -o -e --input --output --error"),
    "setsid": _wrapper(),
    "xargs": _wrapper("-I -n -P -L -d -a -E -s --max-args --max-procs --delimiter --arg-file --replace"),
    "busybox": _wrapper(),
    "toybox": _wrapper(),
    "chroot": _wrapper("--userspec --groups", operands=1),
    "flock": _wrapper("-w -E --timeout --conflict-exit-code", operands=1),
    "unshare": _wrapper("-S -G -R -w --setuid --setgid --root --wd --map-user --map-group --propagation"),
    "nsenter": _wrapper("-t -S -G --target --setuid --setgid"),
    "strace": _wrapper("-e -o -p -s -u -a -E -I -O -S"),
    "ltrace": _wrapper("-e -o -p -s -u -a -l -n -x"),
    "coproc": _wrapper(),
    "taskset": _wrapper("-p --pid", operands=1),
    "chrt": _wrapper("-T -P -D -p", operands=1),
    "setarch": _wrapper(operands=1),
    "linux32": _wrapper(),
    "linux64": _wrapper(),
    "setpriv": _wrapper("--reuid --regid --groups --inh-caps --ambient-caps --bounding-set --securebits --pdeathsig"),
    "unbuffer": _wrapper(),
    "fakeroot": _wrapper("-l -s -i -u -b"),
    "parallel": _wrapper("-j --jobs -a --arg-file -S --joblog --delay --timeout --colsep -I -n -N"),
}
_SHELLS: Final = frozenset(
    {"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "su", "runuser", "flock", "script"}
)
"""They run the text that follows `-c`."""
_JOINING: Final = {"eval": frozenset[str](), "watch": frozenset({"-n", "--interval", "-q", "--equexit"})}
"""They run all their words as one text."""
_FIRST_IS_SCRIPT: Final = {"trap": frozenset[str](), "mapfile": frozenset({"-C"}), "readarray": frozenset({"-C"})}
"""They keep a text to run later: their first operand, or the value of that option."""
_FROM_INPUT: Final = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish"})
_FIND_RUNS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
DEPTH_LIMIT: Final = 8
"""Shells within shells. What is deeper is not read."""


def is_readable(script: ParsedScript, depth: int = DEPTH_LIMIT) -> bool:
    """Whether the text itself names every program it runs, also behind wrappers and in shells it starts."""
    return script.readable and all(_names_what_it_runs(command, depth) for command in script.commands)


def readings_for_deny(command: SimpleCommand, depth: int = DEPTH_LIMIT) -> tuple[tuple[str, ...], ...]:
    """Every way this command may be meant: as written, by base name, and without each known wrapper and shell.

    A deny rule that matches any of them denies.
    """
    readings: list[tuple[str, ...]] = []
    for words in layers(command.words):
        readings.append(words)
        if words[0] == "find" and depth > 0:
            for run in _run_by_find(words):
                readings += readings_for_deny(_as_written(run), depth - 1)
        inner = inner_script(words)
        if inner is not None and depth > 0:
            for found in parse_script(inner).commands:
                readings += readings_for_deny(found, depth - 1)
    return tuple(readings)


def layers(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The words as written, the program by its base name, and then without each wrapper around it."""
    while words:
        words = _by_base_name(words)
        yield words
        if words[0] not in _WRAPPERS:
            return
        words = _unwrap(words)


def inner_script(words: tuple[str, ...]) -> str | None:
    """The text that a program, given by its base name, runs as a script of its own; None when it runs none."""
    if words[0] in _JOINING:
        return " ".join(_after_options(words[1:], _JOINING[words[0]])) or None
    if words[0] == "env":
        return _split_string(words)
    if words[0] in _FIRST_IS_SCRIPT:
        return _kept_script(words[1:], _FIRST_IS_SCRIPT[words[0]])
    if words[0] not in _SHELLS:
        return None
    for index, word in enumerate(words[1:], 1):
        if word.startswith("--command="):
            return word.partition("=")[2]
        bundled = word.startswith("-") and not word.startswith("--") and "c" in word
        if bundled or word == "--command":
            # More options may stand between: `bash -c -e TEXT`.
            return next((text for text in words[index + 1 :] if not text.startswith(("-", "+"))), None)
    return None


def _names_what_it_runs(command: SimpleCommand, depth: int) -> bool:
    seen = 0
    for words in layers(command.words):
        seen = len(command.words) - len(words)
        if not all(command.literal[: seen + 1]):
            return False
        inner = inner_script(words)
        if inner is not None:
            return all(command.literal) and depth > 0 and is_readable(parse_script(inner), depth - 1)
        if words[0] == "find" and _FIND_RUNS & set(words):
            runs = (_as_written(run) for run in _run_by_find(words))
            return all(command.literal) and depth > 0 and all(_names_what_it_runs(run, depth - 1) for run in runs)
        if words[0] in {"source", "."} and not all(command.literal):
            return False
        if words[0] in _FROM_INPUT and all(word.startswith("-") for word in words[1:]):
            return words[1:] in (("--version",), ("--help",))
    return True


def _unwrap(words: tuple[str, ...]) -> tuple[str, ...]:
    wrapper = _WRAPPERS[words[0]]
    return _after_options(words[1:], wrapper.valued)[wrapper.operands :]


def _after_options(words: tuple[str, ...], valued: frozenset[str]) -> tuple[str, ...]:
    while words and (words[0].startswith("-") or "=" in words[0]):
        words = words[2:] if words[0] in valued or _ends_with_valued(words[0], valued) else words[1:]
    return words


def _ends_with_valued(word: str, valued: frozenset[str]) -> bool:
    """A bundle such as `-nu`, whose last option takes the next word."""
    return word[:1] == "-" and word[1:2] != "-" and len(word) > 2 and word[1:].isalpha() and f"-{word[-1]}" in valued


def _kept_script(words: tuple[str, ...], valued: frozenset[str]) -> str | None:
    if not valued:
        return next(iter(_after_options(words, valued)), None)
    return next((text for option, text in pairwise(words) if option in valued), None)


def _as_written(words: tuple[str, ...]) -> SimpleCommand:
    return SimpleCommand(words, certain=True, literal=(True,) * len(words))


def _split_string(words: tuple[str, ...]) -> str | None:
    """`env -S` takes a text apart by itself, much as a shell does (GHSA-796m-2973-wc5q)."""
    for index, word in enumerate(words[1:], 1):
        rest = words[index + 1 :]
        if word.startswith("--split-string="):
            return _joined(word.partition("=")[2], rest)
        if word == "--split-string" or (word.startswith("-") and not word.startswith("--") and "S" in word):
            text = "" if word == "--split-string" else word.partition("S")[2]
            return _joined(text, rest) if text else _joined("".join(rest[:1]), rest[1:])
        if not word.startswith("-") and "=" not in word:
            return None
    return None


def _joined(text: str, rest: tuple[str, ...]) -> str:
    return " ".join((text, *(shlex.quote(word) for word in rest)))


def _run_by_find(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for index, word in enumerate(words):
        if word in _FIND_RUNS and index + 1 < len(words):
            run = words[index + 1 :]
            end = next((i for i, one in enumerate(run) if one in (";", "+")), len(run))
            if end:
                yield run[:end]


def _by_base_name(words: tuple[str, ...]) -> tuple[str, ...]:
    return (posixpath.basename(words[0]), *words[1:])
