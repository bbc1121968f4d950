"""What is said of a rule is what it matches: each sentence is held against the rule itself."""

import pytest

from lodger_tools.permissions.core.judge import RuleSet, judge
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.permissions.core.rule_words import rule_words
from lodger_tools.permissions.core.rules import parse_rule
from lodger_tools.permissions.core.verdicts import Allowed, CallToJudge, NeedsPerson

HOME = "/home/ada"
UNLESS = "if no variable is set and no output goes to a file"


def asked(tool: str, **arguments: object) -> CallToJudge:
    return CallToJudge(tool, dict(arguments), cwd="/w", workspace="/w", memory_directory=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "words", "passes", "asks"),
    [
        (
            "Bash(git commit:*)",
            f"commands that begin with “git commit”, whatever follows, {UNLESS}",
            [asked("Bash", command="git commit -m x"), asked("Bash", command="git commit")],
            [
                asked("Bash", command="git push"),
                asked("Bash", command="A=1 git commit"),
                asked("Bash", command="git commit > x"),
            ],
        ),
        (
            "Bash(ls -l)",
            f"exactly “ls -l”, {UNLESS}",
            [asked("Bash", command="ls -l")],
            [asked("Bash", command="ls -l /"), asked("Bash", command="ls")],
        ),
        (
            "Write(//srv/site/**)",
            "writing any file in /srv/site and in the folders below it",
            [asked("Write", file_path="/srv/site/a"), asked("Write", file_path="/srv/site/b/.c")],
            [asked("Write", file_path="/srv/sites/a"), asked("Edit", file_path="/srv/site/a")],
        ),
        (
            "Read(//srv/*/notes.md)",
            "reading every path that matches //srv/*/notes.md",
            [asked("Read", file_path="/srv/a/notes.md")],
            [asked("Read", file_path="/srv/a/b/notes.md")],
        ),
        ("Fetch", "every call of Fetch", [asked("Fetch")], [asked("Fetched")]),
        ("mcp__*", "every call of each tool whose name begins with mcp__", [asked("mcp__a")], [asked("mc")]),
    ],
)
def test_words(source: str, words: str, passes: list[CallToJudge], asks: list[CallToJudge]) -> None:
    rule = parse_rule(source)
    assert rule_words(rule) == f"Always allow, on this machine and for every agent: {words}. Kept as {source}"
    rules = RuleSet(allow=(rule,))
    for call in passes:
        assert isinstance(judge(call, rules, Mode.STRICT, HOME), Allowed), call
    for call in asks:
        assert isinstance(judge(call, rules, Mode.STRICT, HOME), NeedsPerson), call


def test_no_rule_is_offered_whose_folder_would_stand_for_others() -> None:
    for folder, offered in (("/srv/a*", False), ("/srv/wh?t", False), ("/srv/plain", True)):
        verdict = judge(asked("Write", file_path=f"{folder}/x"), RuleSet(), Mode.STANDARD, HOME)
        assert isinstance(verdict, NeedsPerson)
        assert bool(verdict.suggestions) is offered, folder
