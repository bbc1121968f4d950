"""A seeded sample of random requests, in real boxes: nothing below a mask is found inside that was not asked for."""

import json
import os
from pathlib import Path

import pytest

from lodger_sandbox.contract import SandboxUnavailable
from support.mask_cases import MASKS_FIRST, Order, Sample, case, found_inside, sample
from support.sandbox_users import VISIBLE_FOLDER, as_ordinary_user, visible_folder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs folders outside every private folder")


def test_nothing_below_a_mask_is_found_in_a_box() -> None:
    found = sample(VISIBLE_FOLDER)
    assert not found.leaks
    assert found.proves_something


def test_control_masks_that_are_laid_too_early_are_noticed() -> None:
    assert sample(VISIBLE_FOLDER, MASKS_FIRST).leaks


@pytest.mark.parametrize("broken", [("--ro-bind", "/nowhere/at/all", "/mnt"), ("--chdir", "/nowhere/at/all")])
def test_a_box_that_does_not_start_is_none_where_nothing_is_found(broken: tuple[str, ...]) -> None:
    order = Order(lambda policy: policy, lambda options: (*options, *broken))
    with visible_folder() as base:
        one = case(base, 0)
        with pytest.raises((AssertionError, SandboxUnavailable), match=r"the box ended with|could not be started"):
            found_inside(one, base, order)


def test_the_same_for_an_ordinary_user() -> None:
    with visible_folder() as folder:
        folder.chmod(0o777)
        done = as_ordinary_user(Path(__file__).with_name("masks_as_ordinary_user.py"), str(folder))
        assert done.returncode == 0, done.stderr
        as_made, masks_first = (Sample(**one) for one in json.loads(done.stdout))
    assert not as_made.leaks
    assert as_made.proves_something
    assert masks_first.leaks
