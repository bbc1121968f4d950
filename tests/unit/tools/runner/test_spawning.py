"""Both ways of making a process of a program: whatever is asked of one holds for the other."""

import os
import select
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lodger_tools.runner.spawning import Spawner, failure_in
from support.needed_programs import needed


def of_another_python(*arguments: object) -> int:
    raise TypeError("fork_exec() takes exactly 99 arguments")


WAYS: dict[str, Callable[[], Spawner]] = {
    "quick": Spawner,
    "without the C half": lambda: Spawner(None),
    "with another C half": lambda: Spawner(of_another_python),
}


@pytest.fixture(params=WAYS)
def spawner(request: pytest.FixtureRequest) -> Iterator[Spawner]:
    spawner = WAYS[request.param]()
    yield spawner
    spawner.close()


def output_of(spawner: Spawner, argv: list[str], cwd: str, environment: dict[str, str], **more: Any) -> tuple[str, int]:
    """What it wrote to both streams, and its exit code."""
    read, write = os.pipe()
    pid = spawner.start(argv, cwd, environment, more.get("stdin"), write, write)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    return text, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_it_has_its_folder_its_variables_and_no_file_of_ours(spawner: Spawner, tmp_path: Path) -> None:
    shown = "pwd; env | grep -v '^_='; readlink /proc/self/fd/0; echo no >&2; exit 3"
    text, code = output_of(spawner, [needed("sh"), "-c", shown], str(tmp_path), {"PATH": os.defpath, "A": "é=1"})
    expected = [str(tmp_path), "/dev/null", "no", f"PWD={tmp_path}", f"PATH={os.defpath}", "A=é=1"]
    assert (sorted(text.splitlines()), code) == (sorted(expected), 3)
    assert Path.cwd() != tmp_path
    with (tmp_path / "open").open("w"):
        shown = "for one in /proc/self/fd/*; do readlink $one; done"
        text, _ = output_of(spawner, [needed("sh"), "-c", shown], "/", {"PATH": os.defpath})
    assert "/dev/null" in text and "open" not in text


def test_it_leads_a_session_and_reads_what_it_is_given(spawner: Spawner, tmp_path: Path) -> None:
    (tmp_path / "given").write_text("given\n")
    with (tmp_path / "given").open() as given:
        leads = 'set -- $(cat /proc/$$/stat); [ "$6" = "$$" ] && cat'
        argv = [needed("sh"), "-c", leads]
        assert output_of(spawner, argv, "/", {"PATH": os.defpath}, stdin=given.fileno()) == ("given\n", 0)


def test_a_bare_name_is_looked_for_on_the_path(spawner: Spawner) -> None:
    needed("echo")
    assert output_of(spawner, ["echo", "found"], "/", {}) == ("found\n", 0)


@pytest.mark.parametrize(
    ("argv", "cwd", "error", "named"),
    [
        (["/no/such/program"], "/", FileNotFoundError, None),
        (["no-such-program"], "/", FileNotFoundError, None),
        (["/etc/passwd"], "/", PermissionError, None),
        (["/bin/sh", "-c", "true"], "/no/such/folder", FileNotFoundError, "/no/such/folder"),
        (["/bin/sh", "-c", "x" * 200_000], "/", OSError, None),
    ],
)
def test_what_cannot_start_says_why_and_leaves_no_process(
    spawner: Spawner, argv: list[str], cwd: str, error: type[OSError], named: str | None
) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    before = Path.cwd()
    with pytest.raises(error) as raised:
        spawner.start(argv, cwd, {}, None, 1, 2)
    assert raised.value.errno and (named is None or raised.value.filename == named)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    assert len(os.listdir("/proc/self/fd")) == descriptors  # noqa: PTH208
    assert Path.cwd() == before


@pytest.mark.parametrize("argv", [["/bin/echo", "a\0b"], ["/bin/echo", 7]])
def test_words_that_no_program_can_be_given_are_refused(spawner: Spawner, argv: list[Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        spawner.start(argv, "/", {}, None, 1, 2)


@pytest.mark.parametrize(
    ("report", "named"),
    [
        (b"OSError:2:", "sh"),
        (b"OSError:2:noexec", "/work"),
        (b"OSError:2:noexec:chdir", "/work"),  # as later Pythons say it
    ],
)
def test_what_did_not_start_is_named_as_every_python_tells_it(report: bytes, named: str) -> None:
    error = failure_in(report, "/work", b"sh")
    assert (error.errno, error.filename) == (2, named)


def test_a_report_that_comes_in_parts_is_read_to_its_end() -> None:
    """As from a child that was forked, where there is no vfork."""

    def tell_slowly(*arguments: Any) -> int:
        report_write = arguments[13]
        pid = os.fork()
        if pid == 0:
            for part in (b"OSError:", b"d", b":", b"noexec"):
                os.write(report_write, part)
                select.select((), (), (), 0.01)
            os._exit(255)
        return pid

    spawner = Spawner(tell_slowly)
    with pytest.raises(PermissionError, match="/work"):
        spawner.start(["/bin/sh"], "/work", {}, None, 1, 2)
    spawner.close()
