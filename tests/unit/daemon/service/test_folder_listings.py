"""What a box says about a folder is data, whatever it says."""

import random

import pytest

from lodger_daemon.identity import AgentId, ConversationId, ConversationKey
from lodger_daemon.service.core.folder_listings import (
    Branch,
    Found,
    in_order,
    matching,
    names_of,
    page_of,
    read_branches,
    read_found,
)
from lodger_daemon.service.core.known_folders import NotOpen, known_folders, root_of, within
from lodger_daemon.turns.contract import Folders


def test_a_path_said_twice_is_a_folder() -> None:
    said = b"./a\0./a\0./a/b\nc\0./z\xff\0"
    assert read_found(said, 1000) == ((Found("a", "dir"), Found("a/b\nc", "file"), Found("z\ufffd", "file")), False)
    assert read_found(b"", 1000) == ((), False)


def test_a_cut_answer_ends_before_the_cut() -> None:
    # The second word for a folder may be what was cut, so the last lone path is not believed.
    assert read_found(b"./a\0./b\0", 8) == ((Found("a", "file"),), True)
    assert read_found(b"./a\0./b\0./b\0", 12) == ((Found("a", "file"), Found("b", "dir")), True)
    assert read_found(b"./a\0./bbb", 9) == ((), True)


def test_order_pages_and_search() -> None:
    found = (Found("b.txt", "file"), Found("A.txt", "file"), Found("z", "dir"), Found("z/a.TXT", "file"))
    assert [one.path for one in in_order(found)] == ["z", "A.txt", "b.txt", "z/a.TXT"]
    assert [one.path for one in matching(found, "a.t", 9)] == ["A.txt", "z/a.TXT"]
    assert matching(found, "", 1) == [Found("z", "dir")]
    assert matching(found, "x", 0) == []
    hidden = (Found(".git", "dir"), Found(".DS_Store", "file"), Found("Thumbs.db", "file"), Found(".env", "file"))
    assert names_of((*hidden, *found[:3])) == (["z"], [".env", "A.txt", "b.txt"])


@pytest.mark.parametrize(
    ("limit", "offset", "expected"),
    [
        (None, 0, (["d", "e"], ["f", "g"], False)),
        (2, 1, (["e"], ["f"], True)),
        (2, 2, ([], ["f", "g"], False)),
        (0, 0, ([], [], True)),
        (9, 9, ([], [], False)),
    ],
)
def test_pages_run_over_folders_and_files(limit: int | None, offset: int, expected: object) -> None:
    assert page_of(["d", "e"], ["f", "g"], limit, offset) == expected


def test_branches() -> None:
    said = b"*\0refs/heads/main\n \0refs/heads/a/b\n \0refs/remotes/origin/HEAD\n \0refs/remotes/origin/x\njunk\n\0\n"
    assert read_branches(said) == (
        Branch("main", True, False),
        Branch("a/b", False, False),
        Branch("origin/x", False, True),
    )


def test_any_bytes_give_a_value() -> None:
    rng = random.Random(18)
    pieces = (b"./a", b"\0", b"\0\0", b"\n", b"*", b"refs/heads/", b"\xff", b"/", b"./")
    for _ in range(2000):
        data = b"".join(rng.choice(pieces) for _ in range(rng.randrange(12)))
        found, cut = read_found(data, rng.randrange(1, 20))
        names_of(found)
        assert cut in (True, False)
        read_branches(data)


def test_the_innermost_known_folder_is_taken() -> None:
    known = ("/srv/work", "/srv/work/deep", "/srv/other/")
    assert root_of("/srv/work/deep/a", known) == ("/srv/work/deep", "/srv/work/deep/a")
    assert root_of("//srv/work/./x/../y/", known) == ("/srv/work", "/srv/work/y")
    assert root_of("/srv/work", known) == ("/srv/work", "/srv/work")
    assert root_of("/srv/other/a", known) == ("/srv/other/", "/srv/other/a")
    for path in ("/srv/workshop", "/srv", "/", "srv/work", "", "/srv/work/../x", "/srv/work/\0", "/srv/work/\ud800"):
        with pytest.raises(NotOpen):
            root_of(path, known)
    assert within("/a", "/a")
    assert not within("/ab", "/a")


def test_known_folders_are_each_named_once() -> None:
    key = ConversationKey(AgentId("agent-a"), ConversationId("default"))
    assert known_folders(Folders("/w", "/w", 0, {key: "/x"})) == ("/w", "/x")
