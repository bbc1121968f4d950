import os
import re
import tracemalloc
from pathlib import Path

import pytest

from lodger_tools.runner.edit_file import edit_file
from lodger_tools.runner.edit_text import edited
from lodger_tools.runner.file_errors import FileRefused
from lodger_tools.runner.find_files import as_expression, find_files
from lodger_tools.runner.preview import hunks
from lodger_tools.runner.read_file import read_file
from lodger_tools.runner.read_head import PACKED_LIMIT_BYTES, read_head
from lodger_tools.runner.search_files import search_in_process, search_one_file
from lodger_tools.runner.text_files import real_path_of
from lodger_tools.runner.write_file import write_file

Seen = dict[str, tuple[int, int]]


def search(pattern: str, **more: object) -> dict[str, object]:
    usual = {"output_mode": "content", "before": 0, "after": 0, "ignore_case": False, "line_numbers": True}
    return {"pattern": pattern, **usual, "head_limit": 100, "offset": 0, "multiline": False, **more}


def test_read_numbers_lines_from_one_and_says_where_to_go_on(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("a\nb\r\nc\nd\n")
    assert read_file({}, str(file), 2, 2) == "2\tb\n3\tc\n[Lines 2 to 3 of 4; go on with offset 4.]"
    assert read_file({}, str(file), 3, 100) == "3\tc\n4\td"
    with pytest.raises(FileRefused, match="4 lines; line 5"):
        read_file({}, str(file), 5, 1)


def test_read_keeps_its_limits(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("x" * 3000 + "\n" + ("y" * 100 + "\n") * 1000)
    text = read_file({}, str(file), 1, 2000)
    assert len(text) < 30_200
    assert text.startswith("1\t" + "x" * 2000 + " [1000 more characters]\n2\t")
    assert re.search(r"\[Lines 1 to \d+ of 1001; go on with offset \d+\.\]$", text)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x89PNG\r\n\x1a\n....", "PNG image"),
        (b"RIFF....WEBPVP8 ", "WebP image"),
        (b"abc\0def", "binary file"),
        (bytes(range(1, 8)) * 20, "binary file"),
    ],
)
def test_read_refuses_what_is_no_text(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(FileRefused, match=words):
        read_file({}, str(tmp_path / "a"), 1, 10)


def test_read_says_that_a_file_is_empty_and_survives_a_fifo(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert read_file({}, str(tmp_path / "empty"), 1, 10) == "[The file exists and is empty.]"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileRefused, match="pipe"):
        read_file({}, str(tmp_path / "pipe"), 1, 10)


def test_write_keeps_mode_line_ends_mark_and_link(tmp_path: Path) -> None:
    file = tmp_path / "real"
    file.write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    file.chmod(0o751)
    (tmp_path / "link").symlink_to(file)
    write_file({}, str(tmp_path / "link"), b"c\nd\n")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"\xef\xbb\xbfc\r\nd\r\n", 0o751)
    assert (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


def test_write_and_edit_refuse_a_file_that_changed_since_it_was_read(tmp_path: Path) -> None:
    file, seen = tmp_path / "a", {}
    file.write_text("one\n")
    read_file(seen, str(file), 1, 10)
    file.write_text("two\n")
    with pytest.raises(FileRefused, match="changed since"):
        edit_file(seen, str(file), "two", "three", False, None)
    with pytest.raises(FileRefused, match="changed since"):
        write_file(seen, str(file), b"x")
    assert file.read_text() == "two\n"
    read_file(seen, str(file), 1, 10)
    edit_file(seen, str(file), "two", "three", False, None)
    write_file(seen, str(file), b"four\n")
    assert file.read_text() == "four\n"


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a"
    file.write_text("old")

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "full")

    monkeypatch.setattr("lodger_tools.runner.write_file.os.write", full)
    with pytest.raises(OSError, match="full"):
        write_file({}, str(file), b"new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


def test_edit_keeps_each_line_end_and_refuses_other_encodings(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"\xef\xbb\xbfone\r\ntwo\nthree\r\n")
    edit_file({}, str(file), "three", "3", False, None)
    assert file.read_bytes() == b"\xef\xbb\xbfone\r\ntwo\n3\r\n"
    file.write_bytes(b"caf\xe9\n")
    with pytest.raises(FileRefused, match=r"not UTF-8 text .byte 3 is 0xe9"):
        edit_file({}, str(file), "caf", "x", False, None)


@pytest.mark.parametrize("way", ["a", "./a", "link", "folder-link/a", "folder-link/../a", "chain"])
def test_a_file_is_the_same_by_whatever_way_it_is_read(tmp_path: Path, way: str) -> None:
    file = tmp_path / "a"
    file.write_text("one\n")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "chain").symlink_to(tmp_path / "link")
    (tmp_path / "real-folder").mkdir()
    (tmp_path / "real-folder/a").symlink_to("../a")
    (tmp_path / "folder-link").symlink_to("real-folder")
    seen: Seen = {}
    read_file(seen, str(tmp_path / way), 1, 10)
    assert list(seen) == [str(file.resolve())]
    file.write_text("another\n")
    with pytest.raises(FileRefused, match="changed since"):
        edit_file(seen, str(file), "another", "x", False, None)


def test_a_file_that_goes_while_it_is_read_is_known_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    fd = os.open(tmp_path / "a", os.O_RDONLY)
    assert real_path_of(fd, str(tmp_path / "a")) == str((tmp_path / "a").resolve())
    (tmp_path / "a").unlink()
    assert real_path_of(fd, str(tmp_path / "a")) == str((tmp_path / "a").resolve())
    os.close(fd)
    assert real_path_of(fd, str(tmp_path / "b")) == str((tmp_path / "b").resolve()), "nothing is open under that number"


@pytest.mark.parametrize(
    ("text", "old", "new", "result", "lines"),
    [
        ("a\nb\n", "b", "c", "a\nc\n", [2]),
        ("a\r\nb\r\n", "a\nb", "x\ny", "x\r\ny\r\n", [1]),
        ("a\r\nb\r\n", "b", "x\ny", "a\r\nx\r\ny\r\n", [2]),
        ('say "hi"\n', 'say \\"hi\\"', 'say \\"ho\\"', 'say "ho"\n', [1]),
    ],
)
def test_edited(text: str, old: str, new: str, result: str, lines: list[int]) -> None:
    assert edited(text, old, new, False, None) == (result, lines)


@pytest.mark.parametrize(
    ("text", "old", "replace_all", "expected", "words"),
    [
        ("x\ny\nx\n", "x", False, None, "stands 2 times .lines 1, 3."),
        ("x\nx\n", "x", True, 3, "stands 2 times .lines 1, 2., not 3"),
        ("a  b\n", "a b", False, None, "other white space"),
        ("“a”\n", '"a"', False, None, "other quotation marks"),
        ("if a:\n  b\n", "if a:\n  c", False, None, "first line stands at lines 1"),
        ("a", "", False, None, "empty"),
        ("a", "zz", False, None, "was not found"),
    ],
)
def test_edit_refuses_with_a_reason(text: str, old: str, replace_all: bool, expected: int | None, words: str) -> None:
    with pytest.raises(FileRefused, match=words):
        edited(text, old, "new", replace_all, expected)


def test_edit_replaces_all_when_told() -> None:
    assert edited("x\ny\nx\n", "x", "z", True, None) == ("z\ny\nz\n", [1, 3])
    assert edited("x\ny\nx\n", "x", "z", False, 2) == ("z\ny\nz\n", [1, 3])


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a.py", True),
        ("*.py", "b/a.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "b/c/a.py", True),
        ("src/**", "src/a/b", True),
        ("src/*.{ts,tsx}", "src/a.tsx", True),
        ("src/*.{ts,tsx}", "src/a.js", False),
        ("[!a]?.txt", "bc.txt", True),
        ("[!a]?.txt", "ac.txt", False),
        (".*", ".hidden", True),
        ("a+b(1)", "a+b(1)", True),
    ],
)
def test_globs(pattern: str, path: str, matches: bool) -> None:
    assert bool(re.fullmatch(as_expression(pattern), path)) is matches


def test_find_lists_the_newest_first_and_enters_no_link(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for number, name in enumerate(("old.py", "d/new.py", ".hidden.py")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (number, number))
    (tmp_path / "loop").symlink_to(tmp_path)
    good, text = find_files("**/*.py", str(tmp_path))
    assert (good, text.split("\n")) == (True, [f"{tmp_path}/{name}" for name in (".hidden.py", "d/new.py", "old.py")])
    assert find_files(f"{tmp_path}/d/*.py", "/") == (True, f"{tmp_path}/d/new.py")


def test_search_in_one_file(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("one\ntwo\nthree\nfour\ntwo\n")
    assert search_one_file(str(file), search("two")) == "2:two\n5:two"
    assert search_one_file(str(file), search("three", before=1, after=1)) == "2-two\n3:three\n4-four"
    assert search_one_file(str(file), search("two", output_mode="count")) == f"{file}:2"
    assert search_one_file(str(file), search("t.o")) is None
    assert search_one_file(str(file), search("zz")) == "[Nothing found.]"
    assert search_one_file(str(file), search("two", head_limit=1)) == "2:two\n[1 more entries; go on with offset 1.]"


def test_search_without_ripgrep(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "d/b.py").write_text("y = 2\nx = 3\n")
    (tmp_path / "c.txt").write_text("x = 4\n")
    found = search_in_process(str(tmp_path), search(r"x = \d", glob="*.py"))
    assert found == (True, f"{tmp_path}/a.py:1:x = 1\n{tmp_path}/d/b.py:2:x = 3")
    assert search_in_process(str(tmp_path), search("("))[0] is False


def test_hunks_are_those_of_v2() -> None:
    assert hunks("a\nb\nc\n", "a\nB\nc\nd\n") == [
        {
            "oldStart": 1,
            "oldLines": 3,
            "newStart": 1,
            "newLines": 4,
            "lines": [
                {"type": "context", "content": "a"},
                {"type": "remove", "content": "b"},
                {"type": "add", "content": "B"},
                {"type": "context", "content": "c"},
                {"type": "add", "content": "d"},
            ],
        }
    ]
    assert hunks("", "a\n")[0]["oldStart"] == 0


def repository(folder: Path, refs: str) -> Path:
    (folder / ".git/refs/heads").mkdir(parents=True)
    (folder / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (folder / ".git/packed-refs").write_text(refs)
    return folder


def test_the_head_is_the_loose_ref_or_the_packed_one(tmp_path: Path) -> None:
    folder = repository(tmp_path, f"# pack-refs\n{'a' * 40} refs/heads/main\n")
    assert read_head(str(folder)) == ("a" * 40, {"head": "refs/heads/main"})
    (folder / ".git/refs/heads/main").write_text("b" * 40 + "\n")
    assert read_head(str(folder)) == ("b" * 40, {"head": "refs/heads/main"})
    (folder / ".git/refs/heads/main").unlink()
    (folder / ".git/packed-refs").unlink()
    assert read_head(str(folder)) == ("", {"head": "refs/heads/main"})


@pytest.mark.parametrize(
    ("refs", "commit"),
    [
        (f"{'a' * 40} refs/heads/main2\n{'b' * 40} refs/heads/main\n{'c' * 40} refs/heads/main\n", "b" * 40),
        (f"{'a' * 40} refs/heads/main", "a" * 40),
        (f"{'a' * 40} other/refs/heads/main\n", ""),
        ("\n" * PACKED_LIMIT_BYTES, ""),
    ],
    ids=["after others", "without an end", "others", "large"],
)
def test_a_packed_ref_is_found_by_its_whole_line_at_once(tmp_path: Path, refs: str, commit: str) -> None:
    folder = repository(tmp_path, refs)
    tracemalloc.start()
    try:
        assert read_head(str(folder))[0] == commit
        # Divided into lines, 4 MiB of nothing took 32 MiB more, and a second.
        assert tracemalloc.get_traced_memory()[1] < 4 * PACKED_LIMIT_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("planted", ["fifo", "link", "huge", "words", "linked folder"])
def test_a_planted_ref_is_refused(tmp_path: Path, planted: str) -> None:
    folder = repository(tmp_path / "r", "")
    other = repository(tmp_path / "other", "")
    ref = folder / ".git/refs/heads/main"
    match planted:
        case "fifo":
            os.mkfifo(ref)
        case "link":
            (other / ".git/refs/heads/main").write_text("c" * 40)
            ref.symlink_to(other / ".git/refs/heads/main")
        case "huge":
            os.truncate(os.open(ref, os.O_RDWR | os.O_CREAT), 4 * 1024**3)
        case "words":
            ref.write_text("../../etc/passwd")
        case _:
            ref.parent.rmdir()
            ref.parent.symlink_to(other / ".git/refs/heads")
    with pytest.raises((FileRefused, OSError)):
        read_head(str(folder))
