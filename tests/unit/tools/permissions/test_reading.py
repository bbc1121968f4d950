"""Commands that only read: each program, option and operand has to be known as harmless (BEHAVIOUR.md D5)."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lodger_tools.permissions.core.judge import RuleSet, judge
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.permissions.core.reading import only_reads
from lodger_tools.permissions.core.shell import parse_script
from lodger_tools.permissions.core.verdicts import Allowed, CallToJudge, NeedsPerson

HERE = "/home/ada/project"


def reads(command: str, cwd: str = HERE) -> bool:
    return only_reads(parse_script(command), cwd, (HERE, "/tmp"))


READING = [
    "ls -la src",
    "cat a.txt b.txt",
    "head -5 a.txt; tail -n 3 a.txt",
    "grep -rn 'def main' src | wc -l",
    "find . -name '*.py' -type f -print",
    "sed -n 1,2p a.txt",
    "sed 's/a/b/g' a.txt | sort -u | uniq -c",
    "sort -k2 -t: a.txt",
    "git branch --show-current",
    "git rev-parse --abbrev-ref HEAD",
    "git remote -v",
    "printf '%s %5d%%\\n' count 3",
    "date -I",
    "echo hello && pwd",
    "diff -u a.txt b.txt || true",
    "date +%F",
    "xxd -l 16 a.txt",
    "tree -L 2",
    "cut -d: -f1 a.txt",
    "stat -c %s a.txt",
    "cat -- a.txt",
]


@pytest.mark.parametrize("command", READING)
def test_reading_commands_are_known(command: str) -> None:
    assert reads(command)


@pytest.mark.parametrize(
    "command",
    [
        "less a.txt",  # opens a shell
        "man ls",
        "tree -o out.txt",
        "date -s 12:00",
        "date --set=12:00",
        "date 010112002026",
        "hostname new-name",
        "hostname -F name.txt",
        "xxd -r a.hex",
        "xxd a.txt out.hex",
        "yq -i .a=1 a.yml",
        "yq .a a.yml",
        "printenv",
        "env",
        "jq -n env",
        "jq -n '$ENV.HOME'",
        "sed -i s/a/b/ a.txt",
        "sed --in-place s/a/b/ a.txt",
        "sed -n 'w out.txt' a.txt",
        "sed 's/a/b/w out.txt' a.txt",
        "sed 's/a/b/e' a.txt",
        "sed '1e touch x' a.txt",
        "sed -f script.sed a.txt",
        "sed -e 1p -e 'w x' a.txt",
        "git tag v1",
        "git tag -d v1",
        "git remote add origin x",
        "git remote set-url origin x",
        "git branch new",
        "git branch -D old",
        "git branch",  # sorted by date it reads objects, which a partial clone fetches by a command of its own
        "git branch --list",
        "git tag",
        "git tag -l",
        "printf '%n' PATH; ls",  # `ls` is now looked for in a folder named 0
        "printf 'a%5lln' PATH",
        "printf '%-*jn' 3 PATH",
        "date -I 010112002026",
        "xxd -ac a.txt out.hex",  # xxd reads no bundles: to it this is -a
        "xxd -bs a.txt out.hex",
        "xxd -cols 4 out.hex",
        "tree -Lo 2 out.txt",  # and tree takes the values of a bundle from the words behind it
        "git status",  # a configured file system monitor runs
        "git diff",  # so do external diff and text conversion programs
        "git log",  # and the program that checks signatures
        "git show HEAD",
        "git -c core.pager=x branch",
        "git -C /etc branch",
        "git --exec-path=. branch",
        "git config user.name x",
        "gh api /user",
        "sort --output=a.txt a.txt",
        "sort -o a.txt a.txt",
        "sort --outp=a.txt a.txt",
        "sort --compress-program=./x a.txt",
        "uniq a.txt b.txt",
        "find . -delete",
        "find . -exec rm x ';'",
        "find . -execdir ./x ';'",
        "find . -ok ./x ';'",
        "find . -fprint out",
        "find . -fls out",
        "find -files0-from list",
        "rg --pre ./x word",
        "rg --hostname-bin ./x word",
        "rg -z word",
        "grep -f /etc/passwd a.txt",
        "file -C -m magic",
        "tee a.txt",
        "cp a.txt b.txt",
        "awk '{print > \"x\"}' a.txt",
        "python3 -c 1",
        "cat a.txt > b.txt",
        "cat < a.txt > b.txt",
        "A=1 cat a.txt",
        "cat $(ls)",
        "cat `ls`",
        "cat *.txt",
        "cat ~/.ssh/id",
        "cat /etc/passwd",
        "cat ../other/x",
        "cat a/../../other/x",
        "head -n 1 /etc/shadow",
        "find / -name x",
        "ls /home/ada/project-secret",
        "ls; rm x",
        "ls &",
        "for f in a; do cat $f; done",
        "./ls",
        "/bin/ls",
        "command ls",
        "",
        "((",
    ],
)
def test_what_is_not_known_to_be_harmless_does_more_than_read(command: str) -> None:
    assert not reads(command)


def test_the_folder_it_is_run_in_counts() -> None:
    assert not reads("cat a.txt", cwd="/etc")
    assert reads("cat a.txt", cwd=f"{HERE}/deep")
    assert reads("cat ../a.txt", cwd=f"{HERE}/deep")


ORDINARY = ("a.txt", "src", "-", "--", "HEAD", "+%F", "1p", "-n", "-e", "-s", "-c", "-f", "-d", "-T", "-r")
DANGEROUS = ("-o", "-i", "-w", "--output", "--output=x", "-exec", "-delete", "w x", "s/a/b/w x", "--pre")
OUTSIDE = ("/etc/passwd", "..", "--files0-from=x")
WORDS = st.sampled_from((*ORDINARY, *DANGEROUS, *OUTSIDE))
PROGRAMS = st.sampled_from(
    ["cat", "sort", "sed", "find", "git", "uniq", "date", "xxd", "tree", "rg", "grep", "ls", "file", "hostname", "jq"]
)


@settings(max_examples=400, deadline=None)
@given(PROGRAMS, st.lists(WORDS, max_size=4))
def test_no_mixture_of_words_gets_past(program: str, words: list[str]) -> None:
    command = " ".join([program, *(f"'{word}'" for word in words)])
    if not reads(command):
        return
    options = words[: words.index("--")] if "--" in words else words
    assert not {"--output", "--output=x", "--files0-from=x", "--pre"} & set(options)
    assert program != "find" or not {"-exec", "-delete"} & set(words)
    # The first operand of `jq` is a program in its own language.
    assert program == "jq" or ("/etc/passwd" not in words and ".." not in words)
    assert program not in ("sort", "tree") or "-o" not in options


def test_a_list_of_branches_of_a_hostile_repository_starts_a_program_which_is_why_it_is_asked_for(
    tmp_path: Path,
) -> None:
    settings_of_it = {
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::touch {tmp_path}/started",
        "protocol.ext.allow": "always",
        "branch.sort": "committerdate",
    }
    subprocess.run(["git", "init", "-q", tmp_path / "r"], check=True)
    for name, value in settings_of_it.items():
        subprocess.run(["git", "-C", tmp_path / "r", "config", name, value], check=True)
    (tmp_path / "r" / ".git" / "refs" / "heads" / "other").write_text("1" * 40 + "\n")
    commands = ["git branch", "git branch --show-current", "git remote -v", "git rev-parse --short HEAD"]
    started = {}
    for command in commands:
        subprocess.run(["bash", "-c", command], cwd=tmp_path / "r", capture_output=True, timeout=20)
        started[command] = (tmp_path / "started").exists()
        (tmp_path / "started").unlink(missing_ok=True)
    assert started["git branch"]
    assert not any(started[command] for command in commands if reads(command))


@pytest.mark.parametrize("command", READING)
def test_really_run_they_change_nothing(command: str, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    for name in ("a.txt", "b.txt", "src/c.py"):
        (tmp_path / name).write_text(f"{name}:1 def main\nb:2\n")
    before = state_of(tmp_path)
    subprocess.run(["bash", "--norc", "-c", command], cwd=tmp_path, capture_output=True, timeout=20)
    assert state_of(tmp_path) == before


def state_of(folder: Path) -> list[tuple[str, str, int]]:
    found = []
    for path in sorted(folder.rglob("*")):
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found.append((str(path), content, os.lstat(path).st_mtime_ns))
    return found


@pytest.mark.parametrize(
    ("command", "mode", "expected"),
    [
        ("cat a.txt", Mode.STANDARD, Allowed),
        ("touch a.txt", Mode.STANDARD, NeedsPerson),
        ("cat a.txt", Mode.ACCEPT_EDITS, Allowed),
        ("cat a.txt", Mode.STRICT, NeedsPerson),
        ("cat /etc/shadow", Mode.STANDARD, NeedsPerson),
    ],
)
def test_where_every_command_is_asked_for_reading_ones_pass_but_not_in_mode_strict(
    command: str, mode: Mode, expected: type
) -> None:
    call = CallToJudge("Bash", {"command": command}, HERE, HERE, None)
    assert type(judge(call, RuleSet(ask_every_command=True), mode, "/home/ada")) is expected


def test_a_reading_command_that_wants_another_folder_is_asked_for() -> None:
    call = CallToJudge("Bash", {"command": "cat id_rsa", "folder": "/home/ada/.ssh"}, HERE, HERE, None)
    assert isinstance(judge(call, RuleSet(ask_every_command=True), Mode.STANDARD, "/home/ada"), NeedsPerson)
