"""Replay without a work tree does what `git rebase` does with one, on the installed git."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lodger_daemon.memory.core.commits import Identity, new_commit
from lodger_daemon.memory.git import RunningGits
from lodger_daemon.memory.published import Published
from lodger_daemon.memory.replay import Replayed, replay
from support.generated_histories import generate

HISTORIES = 300
GROUP = 20
"""Histories of one test, so that a failure names a small range."""
NOW_S = 1_800_000_000


@dataclass(frozen=True, slots=True)
class Kept:
    """What must survive of one commit."""

    tree: str
    author: str
    message: str


@dataclass(frozen=True, slots=True)
class Stopped:
    commit: str
    paths: tuple[str, ...]


class Place:
    """One published repository, and a linked work tree in which the real rebase runs."""

    def __init__(self, folder: Path) -> None:
        self.published = Published(folder / "memory", Identity("Ada", "ada@example.org"), RunningGits(), lambda _: None)
        self.published.put_in_place(self.published.begin("new.git"))
        self.work = folder / "work"

    def git(self, *argv: str, stdin: bytes = b"", where: Path | None = None) -> "subprocess.CompletedProcess[bytes]":
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
        environment |= {"GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "ada@example.org", "GIT_EDITOR": "false"}
        place = ["-C", os.fspath(where)] if where else [f"--git-dir={self.published.repository}"]
        argv = ("-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", "-c", "maintenance.auto=false", *argv)
        return subprocess.run(
            ["/usr/bin/git", *place, *argv], input=stdin, env=environment, capture_output=True, check=False
        )

    def line(self, *argv: str, where: Path | None = None) -> str:
        done = self.git(*argv, where=where)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode("utf-8", "replace").strip()

    def rebased(self, up: str, local: str) -> str | Stopped:
        """The head that `git rebase` makes, or where it stops."""
        self.line("checkout", "-q", "--detach", "--force", local, where=self.work)
        done = self.git("rebase", "-q", up, where=self.work)
        if done.returncode == 0:
            return self.line("rev-parse", "HEAD", where=self.work)
        stopped_at = self.line("rev-parse", "REBASE_HEAD", where=self.work)
        unmerged = self.git("ls-files", "-u", "-z", where=self.work).stdout.decode()
        self.line("rebase", "--abort", where=self.work)
        paths = {record.partition("\t")[2] for record in unmerged.split("\0") if record}
        return Stopped(stopped_at, tuple(sorted(paths)))

    def replayed(self, up: str, local: str) -> str | Stopped:
        done = replay(self.published, up, local, None, NOW_S)
        return done.head if isinstance(done, Replayed) else Stopped(done.commit, done.paths)

    def kept(self, up: str, head: str) -> list[Kept]:
        return [self._kept(oid) for oid in self.line("rev-list", "--reverse", f"{up}..{head}").split()]

    def _kept(self, oid: str) -> Kept:
        raw = self.published.reader.read(oid)[1]
        head, _, message = raw.partition(b"\n\n")
        fields = dict(line.split(b" ", 1) for line in head.split(b"\n"))
        # git rebase writes names and messages anew in UTF-8; replay keeps the bytes and names their encoding.
        encoding = fields.get(b"encoding", b"utf-8").decode()
        return Kept(fields[b"tree"].decode(), fields[b"author"].decode(encoding), message.decode(encoding))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("replay"))
    try:
        yield made
    finally:
        made.published.close()


@pytest.fixture(scope="module")
def seen() -> Iterator[dict[str, int]]:
    """How often each outcome came, over the whole module."""
    counted = {"clean": 0, "conflict": 0, "dropped": 0}
    yield counted
    assert counted["clean"] > HISTORIES / 4, counted
    assert counted["conflict"] > HISTORIES / 10, counted
    print(f"replay against git rebase: {counted}")


@pytest.mark.parametrize("first", range(0, HISTORIES, GROUP))
def test_replay_is_what_git_rebase_does(place: Place, seen: dict[str, int], first: int) -> None:
    for seed in range(first, first + GROUP):
        name = f"h{seed}"
        done = place.git("fast-import", "--quiet", "--date-format=raw-permissive", stdin=generate(seed, name))
        assert done.returncode == 0, done.stderr
        up, local = place.line("rev-parse", f"{name}-up"), place.line("rev-parse", f"{name}-local")
        if not place.work.exists():
            place.line("worktree", "add", "-q", "--detach", os.fspath(place.work), up)
        ours, theirs = place.replayed(up, local), place.rebased(up, local)
        if isinstance(ours, Stopped) or isinstance(theirs, Stopped):
            assert ours == theirs, f"seed {seed}"
            seen["conflict"] += 1
            continue
        kept = place.kept(up, ours)
        assert kept == place.kept(up, theirs), f"seed {seed}"
        seen["clean"] += 1
        seen["dropped"] += len(kept) < int(place.line("rev-list", "--count", "--no-merges", f"{up}..{local}"))


def test_bytes_of_a_message_stay_and_signatures_go(place: Place) -> None:
    """Where replay is meant to differ: git rebase writes messages anew in UTF-8."""
    published = place.published
    tree = published.git.line("mktree", stdin=b"")
    note = published.git.line("hash-object", "-w", "--stdin", stdin=b"a note\n")
    with_note = published.git.line("mktree", stdin=f"100644 blob {note}\tnote.md\n".encode())
    person = b"Ada <ada@example.org> 1700000000 +0530"
    roots = [
        published.git.line(
            "hash-object", "-t", "commit", "-w", "--stdin", stdin=new_commit(tree, (), person, person, text)
        )
        for text in ("base\n",)
    ]
    upstream = published.git.line(
        "hash-object", "-t", "commit", "-w", "--stdin", stdin=new_commit(tree, roots, person, person, "up\n")
    )
    message = "Gr\xfc\xdfe\n".encode("latin-1")
    raw = new_commit(with_note, roots, person, person, "").rstrip(b"\n")
    raw += b"\nencoding ISO-8859-1\ngpgsig -----BEGIN\n  line\n -----END\n\n" + message
    local = published.git.line("hash-object", "-t", "commit", "-w", "--stdin", stdin=raw)
    done = replay(published, upstream, local, None, NOW_S)
    assert isinstance(done, Replayed)
    head, _, kept = published.reader.read(done.head)[1].partition(b"\n\n")
    assert kept == message
    assert b"encoding ISO-8859-1" in head.split(b"\n")
    assert b"gpgsig" not in head
    assert b"-----END" not in head
    assert b"author " + person in head.split(b"\n")
