"""Every attack fails in a box and succeeds when the one protection against it is taken away."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.beside import beside
from support.sandbox_users import VISIBLE_FOLDER, as_ordinary_user, user_of_boxes, visible_folder

catalogue, wider = beside(__file__, "attack_catalogue"), beside(__file__, "wider_attacks")
ATTACKS = (*catalogue.ATTACKS, *wider.ATTACKS)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes users and folders outside every private folder")
IDS = [attack.id for attack in ATTACKS]


def test_the_page_names_every_mechanism_once() -> None:
    page = Path(__file__).with_name("README.md").read_text()
    mechanisms, _, _ = page.partition("## Incidents")
    rows = [row.split("|")[3] for row in mechanisms.splitlines() if row.startswith("| ")]
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert sorted(named) == sorted(IDS)
    assert len(set(IDS)) >= 60


def test_every_incident_that_the_page_names_is_tried_where_it_says() -> None:
    here = Path(__file__).parent
    _, _, incidents = (here / "README.md").read_text().partition("## Incidents")
    rows = [row.split("|") for row in incidents.splitlines() if re.match(r"\| [AFNR]\d", row)]
    told = {name for row in rows for name in re.findall(r"[AFNR]\d+", row[1])}
    assert told == {
        "A6",
        "R5",
        "A10",
        *(f"F{n}" for n in (1, 2, 3, 4, 5, 6, 9, 10, 11, 13)),
        *(f"N{n}" for n in (1, *range(3, 9))),
    }
    for row in rows:
        files = "".join((here / name).read_text() for name in re.findall(r"`([^`]+\.py)`", row[2]))
        for test in re.findall(r"`(test_\w+)`", row[3]):
            assert f"def {test}(" in files, row
    assert all(any(one.startswith(f"{name}-") for one in IDS) for name in ("F1", "F2", "F4", "F13", "N7", "N8"))


@pytest.mark.parametrize("attack", ATTACKS, ids=IDS)
def test_fails_for_the_dedicated_user(attack: object) -> None:
    assert not catalogue.gets_through(attack, user_of_boxes(), VISIBLE_FOLDER, protected=True)


@pytest.mark.parametrize("attack", ATTACKS, ids=IDS)
def test_control_succeeds_without_the_protection(attack: object) -> None:
    assert catalogue.gets_through(attack, user_of_boxes(), VISIBLE_FOLDER, protected=False)


@pytest.fixture(scope="module")
def as_user() -> Iterator[dict[str, list[bool]]]:
    with visible_folder() as folder:
        folder.chmod(0o777)
        done = as_ordinary_user(Path(__file__).with_name("all_attacks.py"), str(folder))
        assert done.returncode == 0, done.stderr
        yield json.loads(done.stdout)


@pytest.mark.parametrize("name", IDS)
def test_for_an_ordinary_user(as_user: dict[str, list[bool]], name: str) -> None:
    protected, unprotected = as_user[name]
    assert (protected, unprotected) == (False, True)
