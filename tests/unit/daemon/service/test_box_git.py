"""The configuration that git in a box gets in place of the machine's."""

import subprocess
from pathlib import Path

from lodger_daemon.memory.core.commits import Identity
from lodger_daemon.service.core.box_git import config_text, identity_in

ADA = Identity("Ada", "ada@people.test")
AGENT = Identity("Lodger agent", "agent-1@lodger.invalid")


def listed(**values: str) -> bytes:
    return b"".join(f"user.{key}\n{value}\0".encode() for key, value in values.items())


def test_the_later_file_wins_and_halves_complete_each_other() -> None:
    assert identity_in((listed(name="Old", email="ada@people.test"), listed(name="Ada"))) == ADA
    assert identity_in((listed(name="Ada"), listed())) is None
    assert identity_in((listed(name="Ada", email=""),)) is None
    assert identity_in(()) is None


def test_a_listing_that_breaks_off_is_left_out() -> None:
    assert identity_in((listed(name="Ada", email="ada@people.test"), b"user.name\nEv")) == ADA


def test_a_name_stays_one_line() -> None:
    assert identity_in((listed(name="A\x1b[2J\nda", email="ada@people.test"),)) == Identity("A[2Jda", "ada@people.test")


def test_git_reads_what_was_written_whatever_stands_in_it(tmp_path: Path) -> None:
    place = '/w/a "quoted"\\ #;\n[alias]\n\tx = !touch marked'
    file = tmp_path / "config"
    file.write_text(config_text(place, Identity('A "B" \\ ; #C', "a@b"), AGENT))
    git = subprocess.run(
        ("git", "config", "--file", str(file), "--list", "-z"), capture_output=True, text=True, check=True
    )
    assert git.stdout.split("\0")[:-1] == [
        "user.name\nLodger agent",
        "user.email\nagent-1@lodger.invalid",
        "include.path\n/etc/gitconfig",
        'user.name\nA "B" \\ ; #C',
        "user.email\na@b",
        f"safe.directory\n{place}",
    ]


def test_nobody_known_is_nobody_named() -> None:
    assert "[user]" not in config_text("/w", None, None)
