"""Which release this is stands in one place."""

import subprocess
import sys
from pathlib import Path

from lodger_daemon.version import VERSION

ROOT = Path(__file__).resolve().parents[3]


def test_a_package_made_of_this_tree_bears_the_version_the_program_says(tmp_path: Path) -> None:
    make = f"from hatchling.build import prepare_metadata_for_build_wheel as make; print(make({str(tmp_path)!r}))"
    made = subprocess.run(
        [sys.executable, "-c", make], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    metadata = (tmp_path / made.stdout.strip() / "METADATA").read_text()
    assert f"\nVersion: {VERSION}\n" in metadata
    said = subprocess.run(
        [sys.executable, "-m", "lodger_cli.main", "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert said.stdout == f"lodger {VERSION}\n"
