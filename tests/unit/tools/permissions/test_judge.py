"""Permission decisions: the order of rules, the meaning of the modes, and what rules may never match."""

import pytest

from lodger_tools.permissions.core.judge import RuleSet, judge
from lodger_tools.permissions.core.modes import WIDENING_ORDER, Mode, within_ceiling
from lodger_tools.permissions.core.reach import reach_of
from lodger_tools.permissions.core.rules import BadRule, parse_rule
from lodger_tools.permissions.core.shell import parse_script
from lodger_tools.permissions.core.verdicts import Allowed, CallToJudge, Denied, NeedsPerson

HOME = "/home/ada"
WORKSPACE = "/home/ada/project"


def call(tool: str, **arguments: object) -> CallToJudge:
    return CallToJudge(tool, dict(arguments), cwd=WORKSPACE, workspace=WORKSPACE, memory_directory="/home/ada/memory")  # type: ignore[arg-type]


def bash(command: str, **more: object) -> CallToJudge:
    return call("Bash", command=command, **more)


def rules(**kinds: list[str]) -> RuleSet:
    return RuleSet(**{kind: tuple(parse_rule(source) for source in sources) for kind, sources in kinds.items()})  # type: ignore[arg-type]


def verdict(a_call: CallToJudge, a_rules: RuleSet | None = None, mode: Mode = Mode.STANDARD) -> type:
    return type(judge(a_call, a_rules or RuleSet(), mode, HOME))


@pytest.mark.parametrize(
    ("a_call", "mode", "expected"),
    [
        (bash("touch x"), Mode.STRICT, NeedsPerson),
        (bash("touch x"), Mode.STANDARD, Allowed),
        (bash("touch x"), Mode.ACCEPT_EDITS, Allowed),
        (bash("touch x"), Mode.UNRESTRICTED, Allowed),
        (bash("make", folder="/srv/site"), Mode.STANDARD, NeedsPerson),
        (bash("make", folder="/srv/site"), Mode.UNRESTRICTED, Allowed),
        (call("Write", file_path="notes.md", content=""), Mode.STRICT, NeedsPerson),
        (call("Write", file_path="notes.md", content=""), Mode.STANDARD, Allowed),
        (call("Write", file_path="../other/x", content=""), Mode.STANDARD, NeedsPerson),
        (call("Write", file_path="/home/ada/memory/x.md", content=""), Mode.STANDARD, Allowed),
        (call("Write", file_path="/home/ada/project-secret/x", content=""), Mode.STANDARD, NeedsPerson),
        (call("Read", file_path="/etc/hosts"), Mode.STANDARD, Allowed),
        (call("Read", file_path="~/.ssh/id_ed25519"), Mode.STANDARD, NeedsPerson),
        (call("Read", file_path="notes.md"), Mode.STRICT, Allowed),
        (call("send_mail", to="x"), Mode.STANDARD, NeedsPerson),
        (call("SearchMessages", query="x"), Mode.STRICT, Allowed),
        (call("SearchMessages", query="x"), Mode.STANDARD, Allowed),
    ],
)
def test_mode_decides_when_no_rule_does(a_call: CallToJudge, mode: Mode, expected: type) -> None:
    assert verdict(a_call, mode=mode) is expected


@pytest.mark.parametrize("mode", [Mode.STRICT, Mode.STANDARD, Mode.ACCEPT_EDITS])
def test_a_rule_about_words_does_not_let_a_command_leave_its_box(mode: Mode) -> None:
    saved = rules(allow=["Bash(cat:*)"])
    assert verdict(bash("cat notes.md"), saved, mode) is Allowed
    leaving = judge(bash("cat id_ed25519", folder="/home/ada/.ssh"), saved, mode, HOME)
    assert isinstance(leaving, NeedsPerson) and leaving.suggestions == ()


def test_deny_beats_ask_beats_allow_in_every_mode() -> None:
    every = rules(deny=["Bash(rm:*)"], ask=["Bash(rm:*)", "Bash(git push:*)"], allow=["Bash"])
    for mode in Mode:
        assert verdict(bash("rm x"), every, mode) is Denied
        assert verdict(bash("git push origin"), every, mode) is NeedsPerson
        assert verdict(bash("ls"), every, mode) is Allowed


@pytest.mark.parametrize(
    "command",
    [
        "git diff; rm -rf x",
        "git diff && rm -rf x",
        "git diff | sh",
        "git diff &\nrm x",
        "git difftool",
        "git diff $(rm x)",
        "git diff `rm x`",
        "git diff > ~/.bashrc",
        "GIT_EXTERNAL_DIFF=./x git diff",
        "env git diff",
        "git diff $X",
        "git diff *",
        "git diff ~/x",
        "git diff {a,b}",
        "git diff <(rm x)",
        "'git diff'",
        "git diff\0",
        "if true; then git diff; fi",
        "git () { rm x; }; git diff",
        "git diff <<< x",
    ],
)
def test_an_allow_rule_matches_words_of_certain_commands_only(command: str) -> None:
    asking = RuleSet(allow=(parse_rule("Bash(git diff:*)"),), ask_every_command=True)
    assert verdict(bash(command), asking) is NeedsPerson
    assert verdict(bash("git diff --stat 'a b'"), asking) is Allowed
    assert verdict(bash("git diff && git diff HEAD"), asking) is Allowed


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf x",
        "rm -fr x",
        "rm -r -f x",
        "/bin/rm -rf x",
        "command rm -rf x",
        "env A=1 rm -rf x",
        "sudo -u root rm -rf x",
        "timeout 5 rm -rf x",
        "nohup rm -rf x",
        "xargs rm -rf x",
        "r'm' -rf x",
        "ls; rm -rf x",
        "echo $(rm -rf x)",
        "for i in a; do rm -rf x; done",
        "bash -c 'rm -rf x'",
        "sudo bash -c 'ls && rm -rf x'",
        "A=1 rm -rf x",
        "rm -rf x > /dev/null",
        "! rm -rf x",
        "coproc rm -rf x",
        "trap 'rm -rf x' EXIT",
        "mapfile -c 1 -C 'rm -rf x' lines",
        "bash -c -e 'rm -rf x'",
        "find . -exec env rm -rf x ';'",
        "find . -exec sh -c 'rm -rf x' ';'",
        "sudo -nu root rm -rf x",
        "taskset 1 rm -rf x",
        "setarch x86_64 rm -rf x",
        "parallel rm -rf ::: x",
    ],
)
def test_a_deny_rule_is_not_evaded_by_dress(command: str) -> None:
    assert verdict(bash(command), rules(deny=["Bash(rm -rf:*)"]), Mode.UNRESTRICTED) is Denied


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git push origin", Denied),
        ("git -C /srv/repo push", Denied),
        ("git -c user.name=x --git-dir /srv/repo/.git push -f", Denied),
        ("git --no-pager push", Denied),
        ("git commit -m push", Allowed),
        ("git log push", Allowed),
    ],
)
def test_a_deny_rule_finds_its_words_behind_options_with_values(command: str, expected: type) -> None:
    assert verdict(bash(command), rules(deny=["Bash(git push:*)"]), Mode.UNRESTRICTED) is expected


@pytest.mark.parametrize(
    "command",
    ["echo 'rm x' | sh", "bash <<< 'rm x'", "cat <<E | sudo bash -s\nrm x\nE", "source <(echo rm x)", ". <(echo rm)"],
)
def test_where_words_are_looked_at_a_shell_that_reads_them_from_elsewhere_is_asked_for(command: str) -> None:
    assert verdict(bash(command), rules(deny=["Bash(rm:*)"]), Mode.UNRESTRICTED) is NeedsPerson


@pytest.mark.parametrize("path", [".env", "a/.env", "./x/../.env", f"{WORKSPACE}/deep/er/.env"])
def test_a_path_rule_sees_dot_files_and_through_traversal(path: str) -> None:
    assert verdict(call("Read", file_path=path), rules(deny=["Read(**/.env)"])) is Denied


@pytest.mark.parametrize(
    ("rule", "path", "hit"),
    [
        ("Read(//etc/**)", "/etc/ssl/x", True),
        ("Read(~/.ssh/**)", "/home/ada/.ssh/id", True),
        ("Read(src/*.py)", "src/a.py", True),
        ("Read(src/*.py)", "src/b/a.py", False),
        ("Read(src/**)", "src-other/a", False),
        ("Read(src/?.py)", "src/ab.py", False),
    ],
)
def test_path_patterns(rule: str, path: str, hit: bool) -> None:
    assert (verdict(call("Read", file_path=path), rules(deny=[rule])) is Denied) is hit


@pytest.mark.parametrize("source", ["", "Bash(", "Bash()", "Bash(:*)", "Read()", "Fetch(x)", "9x", "Bash) x ("])
def test_a_rule_that_cannot_be_read_is_an_error(source: str) -> None:
    with pytest.raises(BadRule):
        parse_rule(source)


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("git commit -m x", "Bash(git commit:*)"),
        ("touch x", "Bash(touch:*)"),
        ("python3 x.py", None),
        ("bash x", None),
        ("sudo touch x", None),
        ("curl example.org", None),
        ("./run.sh", None),
        ("touch a; touch b", None),
        ("A=1 touch x", None),
        ("git -c x=y commit", None),
    ],
)
def test_suggestions_never_open_more_than_they_show(command: str, rule: str | None) -> None:
    answer = judge(bash(command), RuleSet(ask_every_command=True), Mode.STANDARD, HOME)
    assert isinstance(answer, NeedsPerson)
    assert [suggestion.rule for suggestion in answer.suggestions] == ([rule] if rule else [])


def test_a_saved_suggestion_lets_the_same_call_pass() -> None:
    first = judge(call("Write", file_path="/srv/site/a.txt"), RuleSet(), Mode.STANDARD, HOME)
    assert isinstance(first, NeedsPerson)
    saved = rules(allow=[first.suggestions[0].rule])
    assert verdict(call("Write", file_path="/srv/site/a.txt"), saved) is Allowed
    assert verdict(call("Write", file_path="/srv/other/a.txt"), saved) is NeedsPerson


def test_reach_names_the_one_folder_a_call_needs() -> None:
    outside = reach_of(call("Write", file_path="/srv/site/a.txt"), HOME)
    assert (outside.inside, outside.folder, outside.read_only) == (False, "/srv/site", False)
    reading = reach_of(call("Grep", pattern="x", path="/srv/site"), HOME)
    assert (reading.inside, reading.folder, reading.read_only) == (False, "/srv/site", True)


def test_a_ceiling_allows_itself_and_what_is_narrower() -> None:
    for i, ceiling in enumerate(WIDENING_ORDER):
        assert [within_ceiling(mode, ceiling) for mode in WIDENING_ORDER] == [j <= i for j in range(4)]


def test_an_overlong_or_broken_command_is_uncertain_and_never_raises() -> None:
    for text in ("a" * 70_000, "((", "'", "\udc80", "\x00", "case x in", "a\\"):
        assert not parse_script(text).certain or text == "a\\"
