"""Files of the hub's own: whole, private, and never written through what stands in the way."""

import os
from pathlib import Path

from lodger_hub.durable_files import write_durably


def test_what_stands_under_the_name_of_the_draft_is_left_alone(tmp_path: Path) -> None:
    """A crash may have left one, and whoever may write the folder could have put one there."""
    others, file = tmp_path / "others", tmp_path / "made" / "token"
    others.write_text("of somebody else")
    others.chmod(0o644)
    file.parent.mkdir()
    (file.parent / f".token.{os.getpid()}").hardlink_to(others)
    write_durably(file, b"secret")
    assert (others.read_text(), file.read_bytes(), file.stat().st_mode & 0o777) == (
        "of somebody else",
        b"secret",
        0o600,
    )
    assert [path.name for path in file.parent.iterdir()] == ["token"]


def test_a_file_is_replaced_in_a_folder_that_is_made_for_it(tmp_path: Path) -> None:
    file = tmp_path / "made" / "certificate"
    write_durably(file, b"old", 0o644)
    write_durably(file, b"new", 0o644)
    assert file.read_bytes() == b"new"
    assert file.parent.stat().st_mode & 0o777 == 0o700
