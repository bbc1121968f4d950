"""Used wrongly with `--json`, a command tells its program why, as it does of what is refused later."""

import json
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ask", "--mode", "wild", "hello"), "there is no mode wild"),
        (("chat", "--mode", "wild"), "there is no mode wild"),
        (("memory", "kept", "--drop"), "give one NAME"),
        (("memory", "writers", "--merge"), "give one ID"),
        (("memory", "resolve", "--ours", "--theirs"), "give one of"),
        (("memory", "resolve", "--both", "a.md"), "give one of"),
        (("memory", "resolve", "--file", "/nowhere.md", "a.md"), "/nowhere.md cannot be read"),
    ],
)
def test_misuse_is_told_as_a_value(arguments: tuple[str, ...], words: str) -> None:
    lodger = [sys.executable, "-P", "-m", "lodger_cli.main", *arguments, "--json"]
    ended = subprocess.run(lodger, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    told = json.loads(ended.stdout)
    assert (ended.returncode, told["type"]) == (2, "error")
    assert told["message"].startswith(words)
    assert words in ended.stderr
