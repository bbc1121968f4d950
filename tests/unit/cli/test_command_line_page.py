"""docs/command-line.md tells of every command and flag there is, and of no other."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from lodger_cli.main import app
from lodger_cli.terminal import Exit

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "command-line.md").read_text()
COMMON = {"--help"}


def commands(command: Any, path: str = "lodger") -> Iterator[tuple[str, Any]]:
    """Every command that does something, by the words that call it."""
    below = getattr(command, "commands", {})
    if not below:
        yield path, command
    for name, one in below.items():
        yield from commands(one, f"{path} {name}")


COMMANDS = dict(commands(typer.main.get_command(app)))


def sections() -> dict[str, str]:
    """The text of each command's section, by the words that call it."""
    parts = re.split(r"^### `(.+)`$", PAGE, flags=re.MULTILINE)
    words = [" ".join(word for word in head.split() if not word.isupper() and word != "--") for head in parts[1::2]]
    return dict(zip(words, parts[2::2], strict=True))


def flags(command: Any) -> set[str]:
    shown = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    return {flag for one in shown for flag in (*one.opts, *one.secondary_opts)} - COMMON


def told(text: str) -> set[str]:
    """Flags that the section itself documents: whatever stands in code and begins with a dash."""
    return {flag for code in re.findall(r"`([^`]+)`", text) for flag in re.findall(r"(?<![\w-])--?[a-z][\w-]*", code)}


def test_every_command_has_its_section_and_no_other_is_told_of() -> None:
    assert sorted(sections()) == sorted(COMMANDS)


def test_every_flag_stands_in_its_commands_section() -> None:
    missing = {words: sorted(flags(one) - told(sections()[words])) for words, one in COMMANDS.items()}
    assert {words: lacking for words, lacking in missing.items() if lacking} == {}


def test_no_table_tells_of_a_flag_that_is_not_there() -> None:
    extra = {}
    for words, text in sections().items():
        rows = "\n".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
        if unknown := told(rows) - flags(COMMANDS[words]):
            extra[words] = sorted(unknown)
    assert extra == {}


def test_every_argument_stands_in_its_commands_heading() -> None:
    heads = re.findall(r"^### `(.+)`$", PAGE, flags=re.MULTILINE)
    for words, one in COMMANDS.items():
        for argument in (param for param in one.params if param.param_type_name == "argument"):
            assert any(head.startswith(words) and str(argument.metavar) in head for head in heads), (words, argument)


def test_every_exit_code_is_told() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, flags=re.MULTILINE)}
    assert codes == {int(code) for code in Exit}
