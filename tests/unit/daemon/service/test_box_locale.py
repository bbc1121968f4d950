"""Which variables of language a box gets, and that programs see nothing else by fewer of them."""

import subprocess
import sys
from pathlib import Path

import pytest

from lodger_daemon.service.box_locale import PLAIN_FOLDER, box_locale
from support.needed_programs import needed

SEEN = """
import locale
locale.setlocale(locale.LC_ALL, "")
names = [name for name in dir(locale) if name.isupper() and not name.startswith("LC_") and name != "CHAR_MAX"]
print([(name, locale.nl_langinfo(getattr(locale, name))) for name in names], locale.localeconv())
print(ascii(sorted("b B a é ß z Ä _ - 1 日 10".split(), key=locale.strxfrm)))
"""
"""All that the C library tells of a locale, and an order."""


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, {"LC_CTYPE": "C.UTF-8"}),
        ({"LANG": ""}, {"LC_CTYPE": "C.UTF-8"}),
        ({"LANG": "C.UTF-8", "TZ": "UTC"}, {"LC_CTYPE": "C.UTF-8"}),
        ({"LANG": "C.utf8"}, {"LC_CTYPE": "C.UTF-8"}),
        ({"LANG": "C.UTF-8", "LC_CTYPE": "de_DE.UTF-8"}, {"LC_CTYPE": "de_DE.UTF-8"}),
        ({"LANG": "C"}, {"LANG": "C"}),
        ({"LANG": "de_DE.UTF-8"}, {"LANG": "de_DE.UTF-8"}),
        ({"LANG": "de_DE.UTF-8", "LC_CTYPE": "C.UTF-8"}, {"LANG": "de_DE.UTF-8", "LC_CTYPE": "C.UTF-8"}),
        ({"LC_ALL": "C.UTF-8"}, {"LC_ALL": "C.UTF-8"}),
    ],
)
def test_what_somebody_chose_stays_and_else_it_is_short(
    said: dict[str, str], expected: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "C.utf8"
    folder.mkdir()
    (folder / "LC_CTYPE").write_text("")
    assert box_locale(said, folder) == expected


def test_where_it_is_not_installed_it_is_said_in_the_way_that_nobody_complains_of(tmp_path: Path) -> None:
    assert box_locale({}, tmp_path / "C.utf8") == {"LANG": "C.UTF-8"}


@pytest.mark.skipif(not PLAIN_FOLDER.exists(), reason="this C library keeps its locales elsewhere")
def test_programs_see_the_same_locale_and_bash_does_not_complain() -> None:
    def seen(environment: dict[str, str]) -> str:
        done = subprocess.run(
            [needed("bash"), "--norc", "-c", '"$0" -c "$1"', sys.executable, SEEN],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert box_locale({"LANG": "C.UTF-8"}) == {"LC_CTYPE": "C.UTF-8"}
    assert seen(box_locale({"LANG": "C.UTF-8"})) == seen({"LANG": "C.UTF-8"})
    assert "'CODESET', 'UTF-8'" in seen(box_locale({}))
