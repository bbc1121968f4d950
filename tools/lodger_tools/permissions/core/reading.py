"""Does a command only read, and only inside some folders? (BEHAVIOUR.md D5)

Whatever is not known to be harmless is not: each program, each of its options and each shape of operand has to stand
here. Programs that show secrets of the environment, open a shell or run what a repository's configuration names are
left out (`env`, `less`, `git status`, `git log`), also where most uses would be harmless.
"""

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lodger_tools.permissions.core.shell import ParsedScript


@dataclass(frozen=True, slots=True)
class _Program:
    flags: str = ""
    """Short options without a value; they may be bundled."""
    valued: str = ""
    """Short options with one."""
    long: str = ""
    """Long options, separated by spaces; one that takes a value ends with `=`."""
    paths: bool = True
    """Operands name files, which have to lie inside; otherwise they are mere text."""
    most: int = 10_000
    """How many operands there may be: a second one is where some programs write to."""
    number: bool = False
    """`-5` is a count."""
    fits: Callable[[str], bool] = lambda operand: True
    """Whether an operand is harmless."""
    script_first: bool = False
    """The first operand is no path but a program in the program's own language; `fits` is about that one alone."""
    one_each: bool = False
    """It takes options apart by rules of its own: a word holds one of them, with digits for a value at most."""


_SED_PRINT: Final = r"(?:(?:\d+|\$|/[^/\\\n]*/)(?:,(?:\d+|\$|/[^/\\\n]*/))?)?[pdq=]"
_SED_REPLACE: Final = r"s/(?:[^/\\\n]|\\[^\n])*/(?:[^/\\\n]|\\[^\n])*/[gpiI0-9]*"
_SED_SCRIPT: Final = re.compile(rf"(?:{_SED_PRINT}|{_SED_REPLACE})\Z")
"""Not `w`, `e`, `r` or the flags of `s` that write or execute."""
_PRINTF_SETS: Final = re.compile(r"%[#' +0-9*.-]*[hjlLqtz]*n")
"""`printf %n PATH` sets a variable, and with it which program the next name means."""
_JQ_ODD: Final = re.compile(r"\$ENV|\$__|\b(?:env|import|include|modulemeta)\b")

_TEXT: Final = _Program(paths=False)
_SUM: Final = _Program("bct", long="binary text tag zero")
_GREP_LONG: Final = (
    "count files-with-matches files-without-match ignore-case invert-match line-number no-filename with-filename "
    "only-matching quiet word-regexp line-regexp fixed-strings extended-regexp include= exclude= exclude-dir= "
    "max-count= context= after-context= before-context= color= colour= regexp= no-messages"
)
_PROGRAMS: Final = {
    "basename": _Program("az", "s", "multiple suffix= zero", paths=False),
    "cat": _Program("AbeEnstTuv", long="number number-nonblank show-all show-ends show-tabs squeeze-blank"),
    "cksum": _Program(),
    "cmp": _Program("bls", "in", "print-bytes silent quiet verbose"),
    "column": _Program("tnex", "sco", "table separator="),
    "cut": _Program("sz", "bcdf", "bytes= characters= delimiter= fields= complement only-delimited output-delimiter="),
    "date": _Program("uRI", "d", "utc universal date= iso-8601= rfc-3339= rfc-email", False, 1,
                     fits=lambda operand: operand.startswith("+")),
    "df": _Program("haiTPkl", "t", "human-readable all inodes local portability print-type"),
    "diff": _Program("abBdiNqrstuwyW", "UCxIL", "unified= context= brief recursive side-by-side ignore-case "
                     "ignore-all-space ignore-blank-lines exclude= width= color= stat", number=True),
    "dirname": _Program("z", paths=False),
    "du": _Program("abchklmsSx0", "d", "all summarize human-readable max-depth= total apparent-size exclude="),
    "echo": _Program("neE", paths=False),
    "expand": _Program("i", "t"),
    "false": _TEXT,
    "file": _Program("bihLkNrsz0", "F", "brief mime mime-type mime-encoding dereference"),
    "fold": _Program("bs", "w"),
    "grep": _Program("aHbcEFGhIilLnoPqRrsvwxz", "ABCem", _GREP_LONG, number=True),
    "groups": _Program(most=0),
    "head": _Program("qvz", "nc", "lines= bytes= quiet silent verbose", number=True),
    "hexdump": _Program("Cbcdovx", "ns"),
    "hostname": _Program("sfd", most=0),
    "id": _Program("ugGnr", paths=False),
    "jq": _Program("rcnSesaj", "", "raw-output compact-output null-input sort-keys slurp exit-status tab",
                   fits=lambda operand: not _JQ_ODD.search(operand), script_first=True),
    "ls": _Program("1aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ", "wTI", "all almost-all classify= color= directory full-time "
                   "group-directories-first human-readable inode recursive reverse size sort= time= time-style="),
    "md5sum": _SUM,
    "nl": _Program("p", "bdfhilnsvw"),
    "nproc": _Program(long="all", most=0),
    "od": _Program("abcdfilosxv", "AjNtw"),
    "printf": _Program(paths=False, fits=lambda operand: not _PRINTF_SETS.search(operand)),
    "pwd": _Program("LP", most=0),
    "readlink": _Program("efmnqsvz"),
    "realpath": _Program("emLPqsz", long="canonicalize-existing canonicalize-missing relative-to="),
    "rev": _Program(),
    "rg": _Program("aFHIilLnNoPsSUvwxc0", "ABCegtTmjd", _GREP_LONG + " files glob= iglob= hidden no-ignore "
                   "type= type-not= multiline smart-case stats json vimgrep max-depth= sort= heading column"),
    "sed": _Program("nErsuz", "", "quiet silent regexp-extended separate",
                    fits=lambda operand: bool(_SED_SCRIPT.match(operand)), script_first=True),
    "seq": _Program("w", "fs", "equal-width format= separator=", paths=False),
    "sha1sum": _SUM,
    "sha256sum": _SUM,
    "sha512sum": _SUM,
    "sort": _Program("bdfghiMnrRVcCmsuz", "kt", "reverse numeric-sort unique key= field-separator= check stable "
                     "human-numeric-sort version-sort ignore-case zero-terminated"),
    "stat": _Program("Lft", "c", "dereference file-system format= printf= terse"),
    "strings": _Program("af", "netoT"),
    "tac": _Program("br", "s"),
    "tail": _Program("qvz", "nc", "lines= bytes= quiet silent verbose", number=True),
    "tr": _Program("cCdst", paths=False),
    "tree": _Program("adfghilpsuDFNQCnrtxJX", "LPI", "dirsfirst noreport prune du si inodes filelimit=",
                     one_each=True),
    "true": _TEXT,
    "uname": _Program("amnoprsv", most=0),
    "uniq": _Program("cdDiuz", "fsw", "count repeated unique ignore-case", most=1),
    "wc": _Program("clLmw", long="bytes chars lines words max-line-length"),
    "which": _Program("a", paths=False),
    "whoami": _Program(most=0),
    "xxd": _Program("abeipuE", "cglos", most=1, one_each=True),
}  # fmt: skip
_FIND_TESTS: Final = frozenset(
    {
        "-a",
        "-and",
        "-o",
        "-or",
        "-not",
        "!",
        "(",
        ")",
        "-true",
        "-false",
        "-empty",
        "-print",
        "-print0",
        "-prune",
        "-ls",
    }
    | {"-depth", "-xdev", "-mount", "-H", "-L", "-P", "-quit", "-readable", "-writable", "-executable"}
)
_FIND_VALUED: Final = frozenset(
    {
        "-name",
        "-iname",
        "-path",
        "-ipath",
        "-wholename",
        "-regex",
        "-iregex",
        "-type",
        "-xtype",
        "-maxdepth",
        "-mindepth",
    }
    | {
        "-size",
        "-mtime",
        "-mmin",
        "-ctime",
        "-cmin",
        "-atime",
        "-amin",
        "-perm",
        "-user",
        "-group",
        "-links",
        "-printf",
    }
)
_GIT: Final = {
    # Neither hooks nor file system monitors, filters, pagers or signature programs of a repository run with these, and
    # no object is read: sorted by date, as a repository's configuration may wish, a list of branches or tags fetches
    # those that a partial clone lacks, from an address that may be a command.
    "branch": frozenset({"--show-current"}),
    "remote": frozenset({"-v", "--verbose"}),
    "rev-parse": frozenset(
        {"HEAD", "--show-toplevel", "--abbrev-ref", "--short", "--is-inside-work-tree", "--git-dir", "--show-prefix"}
    ),
    "version": frozenset(),
}


def only_reads(script: ParsedScript, cwd: str, folders: tuple[str, ...]) -> bool:
    """Whether every command of a script is known to change nothing and to read inside these folders only."""
    return script.certain and all(
        not command.assigns and not command.redirects and _reads(command.words, cwd, folders)
        for command in script.commands
    )


def _reads(words: tuple[str, ...], cwd: str, folders: tuple[str, ...]) -> bool:
    if not words:
        return False
    name, rest = words[0], words[1:]
    if name == "git":
        lists_branches = rest == ("branch",)
        return bool(rest) and not lists_branches and rest[0] in _GIT and set(rest[1:]) <= _GIT[rest[0]]
    if name == "find":
        return _find_reads(rest, cwd, folders)
    program = _PROGRAMS.get(name)
    if program is None:
        return False
    taken = _take_apart(program, rest)
    if taken is None:
        return False
    operands, values = taken
    return _operands_fit(program, operands, values, cwd, folders)


def _operands_fit(
    program: _Program, operands: list[str], values: list[str], cwd: str, folders: tuple[str, ...]
) -> bool:
    if len(operands) > program.most:
        return False
    if any(value.startswith("-") for value in values):
        return False  # should the program take an option to have no value, this is another option
    named = operands
    if program.script_first:
        if not operands or not program.fits(operands[0]):
            return False
        named = operands[1:]
    elif not all(program.fits(operand) for operand in operands):
        return False
    return not program.paths or all(_lies_inside(path, cwd, folders) for path in (*named, *values))


def _take_apart(program: _Program, words: tuple[str, ...]) -> tuple[list[str], list[str]] | None:
    """Operands, and the values of options; None when an option is not known."""
    operands: list[str] = []
    values: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*operands, *rest], values
        if word.startswith("--"):
            if not _long_fits(program, word, rest, values):
                return None
        elif word.startswith("-") and len(word) > 1:
            if not _short_fits(program, word[1:], rest, values):
                return None
        else:
            operands.append(word)
    return operands, values


def _long_fits(program: _Program, word: str, rest: list[str], values: list[str]) -> bool:
    name, given, value = word[2:].partition("=")
    known = program.long.split()
    if name in known:
        return not given
    if f"{name}=" not in known:
        return False
    if given:
        values.append(value)
    elif rest and name not in ("color", "colour", "classify", "iso-8601", "context", "unified"):
        values.append(rest.pop(0))
    return True


def _short_fits(program: _Program, letters: str, rest: list[str], values: list[str]) -> bool:
    if program.number and letters.isascii() and letters.isdigit():
        return True
    if program.one_each and letters[1:] and not (letters[0] in program.valued and re.fullmatch("[0-9]+", letters[1:])):
        return False
    for index, letter in enumerate(letters):
        if letter in program.flags:
            continue
        if letter not in program.valued:
            return False
        value = letters[index + 1 :]
        if value:
            values.append(value)
        elif rest:
            values.append(rest.pop(0))
        return True
    return True


def _find_reads(words: tuple[str, ...], cwd: str, folders: tuple[str, ...]) -> bool:
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in _FIND_VALUED:
            if not rest:
                return False
            rest.pop(0)
        elif word.startswith(("-", "(", ")", "!", ",")):
            if word not in _FIND_TESTS:
                return False
        elif not _lies_inside(word, cwd, folders):
            return False
    return True


def _lies_inside(word: str, cwd: str, folders: tuple[str, ...]) -> bool:
    if word == "-":
        return True
    if word.startswith("~"):
        return False
    path = posixpath.normpath(posixpath.join(cwd, word))
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)
