"""Used wrongly with `--json`, every command tells its program why, in one object, and a person on standard error."""

import contextvars
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from lodger_cli.main import app, main
from lodger_cli.terminal import Exit
from support.terminal import Terminal


def commands(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""
    below = getattr(command, "commands", {})
    if not below:
        yield words, command
    for name, one in below.items():
        yield from commands(one, *words, name)


def flags(command: Any) -> set[str]:
    return {flag for one in command.params for flag in one.opts}


FOR_PROGRAMS = [(words, one) for words, one in commands(typer.main.get_command(app)) if "--json" in flags(one)]
"""Every command with `--json`."""


def needed(command: Any) -> list[str]:
    """Something for each argument that has to be given."""
    return ["1" for one in command.params if one.param_type_name == "argument" and one.required]


def mistakes() -> Iterator[tuple[str, ...]]:
    """For every command an option it does not have, an argument too many, each argument and value that is missing, and
    each number that is none."""
    for words, command in FOR_PROGRAMS:
        arguments = needed(command)
        yield (*words, *arguments, "--json", "--no-such-option")
        takes_any_number = any(one.nargs == -1 for one in command.params if one.param_type_name == "argument")
        optional = sum(one.param_type_name == "argument" and not one.required for one in command.params)
        if not takes_any_number:
            yield (*words, *arguments, *["1"] * optional, "too-many", "--json")
        if arguments:
            yield (*words, *arguments[1:], "--json")
        for option in command.params:
            if option.param_type_name == "option" and not option.is_flag and not option.hidden:
                yield (*words, *arguments, "--json", option.opts[0])
                if option.metavar in ("PORT", "N", "SECONDS"):
                    yield (*words, *arguments, option.opts[0], "many", "--json")


FOUND_OUT_LATER = [
    (("ask", "--mode", "wild", "hello"), "there is no mode wild"),
    (("ask", " "), "there is nothing to ask"),
    (("ask", "-"), "there is nothing to ask"),
    (("ask", "--image", "/nowhere.png", "look"), "the picture /nowhere.png cannot be read"),
    (("ask", "--image", __file__, "look"), f"{__file__} is no picture"),
    (("chat", "--mode", "wild"), "there is no mode wild"),
    (("connect", "openai", "--api-key-file", "/nowhere"), "the key's file cannot be read"),
    (("join", "http://192.0.2.1", "code"), "http://192.0.2.1 would carry the token in the clear"),
    (("logs", "--part", "wild"), "Invalid value for --part"),
    (("memory", "kept", "--drop"), "give one NAME"),
    (("memory", "kept", "one", "--drop"), "nothing brings back what is dropped"),
    (("memory", "writers", "--merge"), "give one ID"),
    (("memory", "resolve", "--ours", "--theirs"), "give one of"),
    (("memory", "resolve", "--both", "a.md"), "give one of"),
    (("memory", "resolve", "--file", "/nowhere.md", "a.md"), "/nowhere.md cannot be read"),
    (("memory", "restore", "/nowhere.bundle"), "/nowhere.bundle cannot be read"),
    (("memory", "share", "No Name"), "No Name cannot name a shared memory"),
    (("memory", "token", "wild"), "there is no host wild"),
    (("memory", "token", "mirror", "--token-file", "/nowhere"), "the token's file cannot be read"),
    (("memory", "unshare", "team"), "it is taken from all agents"),
    (("service", "install", "--only", "wild"), "Invalid value for --only"),
    (("service", "install", "--dry-run", "--tls-cert", "cert.pem"), "--tls-cert needs --lan"),
    (("service", "install", "--dry-run", "--credential", "openai:/nowhere"), "there is no file /nowhere"),
]


class Ended:
    """What became of `lodger WORDS`, in this process: a context of its own keeps its `--json` from the next one's."""

    def __init__(self, words: tuple[str, ...], home: Path) -> None:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
            patch.setenv("LODGER_HOME", str(home))
            patch.setattr(sys, "argv", ["lodger", *words])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
            contextvars.copy_context().run(main)
        self.code = ended.value.code


@pytest.mark.parametrize("words", [*mistakes()], ids=" ".join)
def test_what_cannot_be_read_is_told_as_a_value(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, said = Ended(words, tmp_path), capsys.readouterr()
    assert ended.code == Exit.USAGE
    told = json.loads(said.out)
    assert told["type"] == "error"
    assert told["message"] in said.err


@pytest.mark.parametrize(
    ("words", "told_words"), FOUND_OUT_LATER, ids=[" ".join(words) for words, _ in FOUND_OUT_LATER]
)
def test_what_is_found_out_later_is_told_alike(
    words: tuple[str, ...], told_words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, said = Ended((*words, "--json"), tmp_path), capsys.readouterr()
    assert ended.code == Exit.USAGE, said
    told = json.loads(said.out)
    assert (told["type"], told["message"][: len(told_words)]) == ("error", told_words)
    assert told["message"] in said.err

    ended, said = Ended(words, tmp_path), capsys.readouterr()
    assert (ended.code, said.out) == (Exit.USAGE, "")


@pytest.mark.parametrize(
    "command", [one for _, one in FOR_PROGRAMS], ids=[" ".join(words) for words, _ in FOR_PROGRAMS]
)
def test_every_failure_can_know_that_json_is_asked_for(command: Any) -> None:
    """One option for all: it is noticed before any other is looked at, and so is whatever fails after it."""
    (option,) = (one for one in command.params if "--json" in one.opts)
    assert option.is_eager
    assert option.callback is not None


def test_what_nobody_thought_of_is_told_before_its_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "a-file"
    home.touch()
    with pytest.raises(NotADirectoryError):
        Ended(("models", "--json"), home)
    told = json.loads(capsys.readouterr().out)
    assert (told["type"], told["message"].partition(":")[0]) == ("error", "NotADirectoryError")
    with pytest.raises(NotADirectoryError):
        Ended(("models",), home)
    assert capsys.readouterr().out == ""


def test_what_another_program_is_told_asks_nothing_of_this_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (
        ("sandbox", "run", "--policy", "wild", "ls", "--json"),
        ("sandbox", "run", "--policy", "wild", "--", "ls", "--json"),
        ("pair", "--no-such-option", "--", "--json"),
    ):
        assert Ended(words, tmp_path).code == Exit.USAGE
        assert capsys.readouterr().out == ""


def test_who_types_nothing_where_asked_is_told_that_nothing_was_done(tmp_path: Path) -> None:
    with Terminal(tmp_path, "memory", "token", "mirror") as terminal:
        terminal.expect("Token of the mirror: ")
        terminal.send("\x04")
        terminal.expect("so nothing was done")
        assert terminal.end() == Exit.FAILED
