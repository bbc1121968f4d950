"""A program that is missing makes a test fail, and nothing of the test is begun."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TEST = """
import pathlib, pytest
@pytest.fixture
def begun(): pathlib.Path("begun").touch()
@pytest.mark.needs("sh", "{program}")
def test_one(begun): pass
"""


@pytest.mark.parametrize(("program", "passes"), [("sh", True), ("no-such-program", False)])
def test_a_test_that_needs_what_is_missing_fails_and_does_not_skip(tmp_path: Path, program: str, passes: bool) -> None:
    (tmp_path / "test_one.py").write_text(TEST.format(program=program))
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_one.py"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode == 0) is passes, done.stdout + done.stderr
    assert (tmp_path / "begun").exists() is passes
    assert passes or f"{program} is missing: install it" in done.stdout
