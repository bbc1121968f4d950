import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodger_tools.output import overflow
from lodger_tools.output.core.snapshot import Snapshot
from lodger_tools.output.core.truncation import ANY_LIMIT_CHARS, BASH_LIMIT_CHARS, SEARCH_LIMIT_CHARS, truncate_middle
from lodger_tools.output.live import LiveOutput
from lodger_tools.output.overflow import OverflowFolder
from lodger_tools.redaction.core.redactor import Redactor
from support.patience import LIMIT_S


def test_the_limits_are_those_of_the_design() -> None:
    assert (BASH_LIMIT_CHARS, SEARCH_LIMIT_CHARS, ANY_LIMIT_CHARS) == (30_000, 10_000, 32_000)


@given(st.integers(0, 3000), st.integers(1000, 2000))
def test_truncation_keeps_both_ends_and_the_limit(length: int, limit: int) -> None:
    text = "".join(chr(97 + number % 26) for number in range(length))
    cut = truncate_middle(text, limit, "/run/lodger/overflow/bash-1.txt")
    assert len(cut) <= limit
    if length <= limit:
        assert cut == text
    else:
        half = (limit - 400) // 2
        assert cut.startswith(text[:half] + "\n[") and cut.endswith("]\n" + text[-half:])
        assert f"{length - 2 * half} characters" in cut and "/run/lodger/overflow/bash-1.txt" in cut


def test_a_snapshot_stays_small() -> None:
    snapshot = Snapshot()
    snapshot.add("short\n")
    assert snapshot.text() == "short\n"
    for _ in range(10_000):
        snapshot.add("0123456789")
    assert len(snapshot.text()) <= BASH_LIMIT_CHARS
    assert snapshot.text().startswith("short\n") and "characters are left out" in snapshot.text()


def test_overflow_files_are_private_and_named_as_the_box_sees_them(tmp_path: Path) -> None:
    folder = OverflowFolder(tmp_path / "overflow")
    mount = folder.mount("agent-1")
    assert (mount.source, mount.target, mount.writable) == (str(tmp_path / "overflow/agent-1"), overflow.TARGET, False)
    path = folder.write("agent-1", "Bash", "whole text")
    assert path is not None
    file = Path(mount.source) / Path(path).name
    assert file.read_text() == "whole text"
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "overflow", file.parent, file)]
    assert modes == [0o700, 0o700, 0o600]
    with pytest.raises(ValueError, match="agent"):
        folder.write("../agent-1", "Bash", "x")


def test_overflow_is_bounded_and_cleaned_by_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overflow, "FOLDER_LIMIT_FILES", 3)
    times = [0.0]
    folder = OverflowFolder(tmp_path, wall=lambda: times[0])
    for number in range(5):
        folder.write("agent-1", "Bash", str(number))
    assert len(list((tmp_path / "agent-1").iterdir())) == 3
    times[0] = max(path.stat().st_mtime for path in (tmp_path / "agent-1").iterdir()) + 24 * 3600 + 1
    assert folder.clean() == 3


def test_a_disk_that_takes_nothing_does_not_lose_the_result(tmp_path: Path) -> None:
    (tmp_path / "overflow").write_text("a file where the folder should be")
    assert OverflowFolder(tmp_path / "overflow").write("agent-1", "Bash", "text") is None


async def test_live_output_is_redacted_whole_and_not_too_often() -> None:
    shown: list[str] = []
    live = LiveOutput(Redactor({"TOKEN": "hunter2-hunter2"}), shown.append)
    for piece in (b"a \xc3", b"\xa9 hunter2", b"-hunter2 b\n", b"\x1b[31mred"):
        live.take(piece)
    assert shown == ["a "]
    async with asyncio.timeout(LIMIT_S):
        while len(shown) < 2:  # noqa: ASYNC110 - a timer of the loop is what is waited for
            await asyncio.sleep(0.005)
    assert shown == ["a ", "a é TOKEN=<REDACTED> b\nred"]
    live.close()
