"""The configuration that git in a box gets in place of the machine's."""

import subprocess
from pathlib import Path

from lodger_daemon.memory.core.commits import Identity
from lodger_daemon.service.core.box_git import PersonsGit, config_text, persons_git_in
from lodger_daemon.service.persons_git import persons_git

ADA = Identity("Ada", "ada@people.test")
AGENT = Identity("Lodger agent", "agent-1@lodger.invalid")


def listed(**values: str) -> bytes:
    return b"".join(f"user.{key}\n{value}\0".encode() for key, value in values.items())


def test_the_later_file_wins_and_halves_complete_each_other() -> None:
    assert persons_git_in((listed(name="Old", email="ada@people.test"), listed(name="Ada"))).identity == ADA
    assert persons_git_in((listed(name="Ada"), listed())).identity is None
    assert persons_git_in((listed(name="Ada", email=""),)).identity is None
    assert persons_git_in(()).identity is None


def test_a_listing_that_breaks_off_is_left_out() -> None:
    assert persons_git_in((listed(name="Ada", email="ada@people.test"), b"user.name\nEv")).identity == ADA


def test_a_name_stays_one_line() -> None:
    assert persons_git_in((listed(name="A\x1b[2J\nda", email="ada@people.test"),)).identity == Identity(
        "A[2Jda", "ada@people.test"
    )


def test_git_reads_what_was_written_whatever_stands_in_it(tmp_path: Path) -> None:
    place = '/w/a "quoted"\\ #;\n[alias]\n\tx = !touch marked'
    file = tmp_path / "config"
    person = PersonsGit(Identity('A "B" \\ ; #C', "a@b"), {"core.autocrlf": "input", "log.date": 'format:"%d"'})
    file.write_text(config_text(place, person, AGENT))
    git = subprocess.run(
        ("git", "config", "--file", str(file), "--list", "-z"), capture_output=True, text=True, check=True
    )
    assert git.stdout.split("\0")[:-1] == [
        "user.name\nLodger agent",
        "user.email\nagent-1@lodger.invalid",
        "include.path\n/etc/gitconfig",
        'user.name\nA "B" \\ ; #C',
        "user.email\na@b",
        "core.autocrlf\ninput",
        'log.date\nformat:"%d"',
        f"safe.directory\n{place}",
    ]


def test_nobody_known_is_nobody_named() -> None:
    assert "[user]" not in config_text("/w", PersonsGit(), None)


def test_of_the_preferences_only_harmless_ones_are_taken() -> None:
    listing = b"".join(
        f"{key}\n{value}\0".encode()
        for key, value in (
            ("pull.rebase", "false"),
            ("core.autocrlf", "input"),
            ("core.fsmonitor", "touch marked"),
            ("color.pager", "touch marked"),
            ("alias.pull", "!touch marked"),
            ("credential.helper", "store"),
            ("author.name", "Eve"),
        )
    )
    assert persons_git_in((listing, b"pull.rebase\ntrue\0")).preferences == {
        "pull.rebase": "true",
        "core.autocrlf": "input",
    }


def test_what_an_included_file_makes_too_long_is_left_out(tmp_path: Path) -> None:
    """An agent may write the file, where a person keeps it in a workspace."""
    mine = "[user]\n\tname = Ada\n\temail = ada@example.org\n"
    (tmp_path / ".gitconfig").write_text(f"{mine}[include]\n\tpath = {tmp_path}/more\n")
    (tmp_path / "more").write_text("[color]\n" + "\tui = x\n" * 10)
    assert persons_git(tmp_path).preferences == {"color.ui": "x"}
    (tmp_path / "more").write_text("[color]\n" + "\tui = x\n" * 120_000)
    assert persons_git(tmp_path) == PersonsGit()
