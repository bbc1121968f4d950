"""Permission rules: `Tool` or `Tool(payload)`, and what they match (BEHAVIOUR.md D3, D4).

Paths are compared after lexical normalisation, component by component; what a link hides is the box's business, which
the kernel enforces. Commands are compared by words.
"""

import posixpath
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from lodger_tools.permissions.core.shell import ParsedScript, SimpleCommand
from lodger_tools.permissions.core.wrappers import readings_for_deny

FILE_TOOLS: Final = {"Read": "file_path", "Write": "file_path", "Edit": "file_path", "Glob": "path", "Grep": "path"}
COMMAND_TOOL: Final = "Bash"
_RULE: Final = re.compile(r"\A([A-Za-z_][A-Za-z0-9_*-]*)(?:\((.*)\))?\Z", re.DOTALL)


class BadRule(ValueError):
    """A rule that cannot be read. The text names the rule and what is wrong: configuration fails closed."""


@dataclass(frozen=True, slots=True)
class ToolRule:
    """Every call of a tool; `*` at the end of the name matches any ending."""

    tool: str
    source: str


@dataclass(frozen=True, slots=True)
class PathRule:
    tool: str
    glob: str
    source: str


@dataclass(frozen=True, slots=True)
class CommandRule:
    words: tuple[str, ...]
    prefix: bool
    source: str


Rule: TypeAlias = ToolRule | PathRule | CommandRule


def parse_rule(source: str) -> Rule:
    """Read one rule. Raises: BadRule."""
    match = _RULE.match(source.strip())
    if match is None:
        raise BadRule(f"permission rule {source!r}: write it as Tool or Tool(payload)")
    tool, payload = match.group(1), match.group(2)
    if payload is None:
        return ToolRule(tool, source)
    if tool == COMMAND_TOOL:
        prefix = payload.endswith(":*")
        words = tuple((payload[:-2] if prefix else payload).split())
        if not words:
            raise BadRule(f"permission rule {source!r}: name at least one word of the command")
        return CommandRule(words, prefix, source)
    if tool in FILE_TOOLS:
        if not payload.strip():
            raise BadRule(f"permission rule {source!r}: the path pattern is empty")
        return PathRule(tool, payload.strip(), source)
    raise BadRule(f"permission rule {source!r}: only {COMMAND_TOOL} and file tools take a payload")


def tool_matches(rule: ToolRule, tool_name: str) -> bool:
    if rule.tool.endswith("*"):
        return tool_name.startswith(rule.tool[:-1])
    return rule.tool == tool_name


def path_matches(rule: PathRule, tool_name: str, path: str, workspace: str, home: str) -> bool:
    """Whether an absolute, normalised path is meant by the rule."""
    return rule.tool == tool_name and _glob_regex(_absolute_glob(rule.glob, workspace, home)).match(path) is not None


def _absolute_glob(glob: str, workspace: str, home: str) -> str:
    if glob.startswith("//"):
        return posixpath.normpath(glob[1:])
    if glob.startswith("~/"):
        return posixpath.join(home, posixpath.normpath(glob[2:]))
    if glob.startswith("/"):
        return posixpath.normpath(glob)
    return posixpath.normpath(posixpath.join(workspace, glob))


@lru_cache(maxsize=512)
def _glob_regex(glob: str) -> re.Pattern[str]:
    """`**` crosses folders, `*` and `?` stay in one; names with a leading dot are names like any other."""
    out: list[str] = []
    i = 0
    while i < len(glob):
        if glob.startswith("/**/", i):
            out.append("/(?:.*/)?")
            i += 4
        elif glob.startswith("**", i):
            out.append(".*")
            i += 2
        elif glob[i] == "*":
            out.append("[^/]*")
            i += 1
        elif glob[i] == "?":
            out.append("[^/]")
            i += 1
        else:
            out.append(re.escape(glob[i]))
            i += 1
    return re.compile("".join(out) + r"\Z", re.DOTALL)


def command_allowed(rules: tuple[CommandRule, ...], script: ParsedScript) -> CommandRule | None:
    """The rule that lets the last command pass, when every simple command is let pass by some rule.

    A script that is uncertain, sets variables or writes files never matches.
    """
    if not script.certain:
        return None
    found: CommandRule | None = None
    for command in script.commands:
        if command.assigns or command.redirects:
            return None
        found = next((rule for rule in rules if _words_match(rule, command.words)), None)
        if found is None:
            return None
    return found


def command_hit(rules: tuple[CommandRule, ...], script: ParsedScript) -> CommandRule | None:
    """The first rule that any command of the script hits in any reading: for deny and ask rules."""
    for command in script.commands:
        for words in readings_for_deny(command):
            for rule in rules:
                if _words_hit(rule, words):
                    return rule
    return None


def _words_match(rule: CommandRule, words: tuple[str, ...]) -> bool:
    if rule.prefix:
        return words[: len(rule.words)] == rule.words
    return words == rule.words


def _words_hit(rule: CommandRule, words: tuple[str, ...]) -> bool:
    """Like a match, but options may stand in any order and be bundled: `rm -fr` is `rm -rf`."""
    if not words or words[0] != rule.words[0]:
        return False
    if _words_match(rule, words):
        return True
    options, operands = _split_options(rule.words[1:])
    have_options, have_operands = _split_options(words[1:])
    if not options <= have_options:
        return False
    if have_operands[: len(operands)] == operands if rule.prefix else have_operands == operands:
        return True
    return bool(operands) and _named_behind_options(operands, words[1:], rule.prefix)


def _named_behind_options(operands: tuple[str, ...], words: tuple[str, ...], prefix: bool) -> bool:
    """`git -C folder push` is `git push`: a word behind an option may be its value, which no table could tell of every
    program."""
    wanted, after_option = list(operands), False
    for word in words:
        if word.startswith("-") and len(word) > 1:
            after_option = True
            continue
        if wanted and word == wanted[0]:
            wanted.pop(0)
        elif not after_option:
            return prefix and not wanted
        after_option = False
    return not wanted


def _split_options(words: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    options: set[str] = set()
    operands: list[str] = []
    for word in words:
        if word.startswith("--"):
            options.add(word)
        elif word.startswith("-") and len(word) > 1:
            options.update(word[1:])
        else:
            operands.append(word)
    return frozenset(options), tuple(operands)


_NEVER_GENERALISED: Final = frozenset((
    "R", "Rscript", "alias", "ash", "at", "awk", "bash", "batch", "builtin", "bun", "bunx", "busybox", "bwrap",
    "chgrp", "chmod", "chown", "chroot", "chrt", "cmake", "command", "coproc", "cpio", "cpulimit", "crontab", "csh",
    "curl", "dash", "dbus-run-session", "dd", "deno", "doas", "dotnet", "ed", "elixir", "emacs", "enable", "entr",
    "env", "erl", "eval", "ex", "exec", "expect", "fakeroot", "fd", "fdisk", "find", "firejail", "fish", "flock",
    "gawk", "gdb", "ghci", "gmake", "guile", "hash", "hyperfine", "iex", "ionice", "ipython", "irb", "java", "jshell",
    "julia", "just", "kill", "killall", "ksh", "ld-linux-x86-64.so", "ld.so", "less", "linux32", "linux64", "lldb",
    "ltrace", "lua", "luajit", "m4", "make", "man", "mapfile", "mawk", "mkfs", "mksh", "more", "mv", "mysql", "nano",
    "nawk", "nc", "ncat", "nice", "ninja", "node", "nodejs", "nohup", "npx", "nsenter", "numactl", "nvim", "octave",
    "osascript", "parallel", "perf", "perl", "php", "pipx", "pkexec", "pkill", "printf", "prlimit", "proxychains",
    "psql", "pwsh", "pypy", "python", "racket", "rbash", "read", "readarray", "rm", "rmdir", "rsync", "ruby", "run0",
    "runuser", "scala", "scp", "screen", "script", "sed", "set", "setarch", "setpriv", "setsid", "sftp", "sh",
    "shopt", "shred", "socat", "source", "sqlite", "ssh", "ssh-agent", "stdbuf", "strace", "su", "sudo",
    "systemd-run", "tar", "taskset", "tclsh", "tcsh", "time", "timeout", "tmux", "torsocks", "toybox", "trap",
    "unbuffer", "unlink", "unshare", "uvx", "valgrind", "vi", "view", "vim", "watch", "wget", "wish", "xargs",
    "xvfb-run", "zip", "zsh",
))  # fmt: skip
"""Programs that run other programs, destroy, or set what a later word means: one approval of them never becomes a
standing rule (ATTACKS.md A3).
Compared without the version at the end of a name: `python3.11` is `python`."""
_VERSION: Final = re.compile(r"[-.\d]+\Z")
_WITH_SUBCOMMAND: Final = frozenset(
    {
        "git",
        "gh",
        "npm",
        "pnpm",
        "yarn",
        "cargo",
        "go",
        "pip",
        "uv",
        "docker",
        "podman",
        "kubectl",
        "systemctl",
        "poetry",
    }
)
_RUNNING_SUBCOMMANDS: Final = frozenset(
    {
        "run",
        "run-script",
        "exec",
        "x",
        "dlx",
        "eval",
        "repl",
        "shell",
        "sh",
        "filter-branch",
        "rebase",
        "bisect",
        "alias",
    }
    | {"extension", "config", "submodule", "start", "restart", "install", "tool", "generate", "edit"}
)
"""What is run then stands in a file or in further words."""


def suggest_command_rule(command: SimpleCommand) -> str | None:
    """The narrowest standing rule worth offering for one command, or None."""
    if not command.certain or command.assigns or command.redirects or not command.words:
        return None
    program = command.words[0]
    if "/" in program or not re.fullmatch(r"[A-Za-z0-9._+-]+", program):
        return None
    if program in _NEVER_GENERALISED or _VERSION.sub("", program) in _NEVER_GENERALISED:
        return None
    if program not in _WITH_SUBCOMMAND:
        return f"{COMMAND_TOOL}({program}:*)"
    if len(command.words) < 2 or not re.fullmatch(r"[a-z][a-z0-9-]*", command.words[1]):
        return None
    if command.words[1] in _RUNNING_SUBCOMMANDS:
        return None
    return f"{COMMAND_TOOL}({program} {command.words[1]}:*)"
