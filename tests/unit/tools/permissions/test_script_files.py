"""Which files a person's word about a command is bound to."""

import pytest

from lodger_tools.permissions.core.script_files import FILES_LIMIT, script_files
from lodger_tools.permissions.core.shell import parse_script


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("ls -l notes.txt", ()),
        ("./run.sh a b", ("./run.sh",)),
        ("bash -x run.sh arg", ("run.sh",)),
        ("bash -lc 'python3 tool.py x'", ("tool.py",)),
        ("python3 -m http.server", ()),
        ("python3 -c 'print(1)' x.txt", ()),
        ("node --require ./hook.js app.js", ("./hook.js", "app.js")),
        ("perl -e 1 lib.pl", ("lib.pl",)),
        ("source env.sh; . other.sh", ("env.sh", "other.sh")),
        ("timeout 5 ./run.sh", ("./run.sh",)),
        ("sudo -u ada sh x.sh", ("x.sh",)),
        ("make test", ("GNUmakefile", "makefile", "Makefile")),
        ("make -f build.mk", ("GNUmakefile", "makefile", "Makefile", "build.mk")),
        ("awk -f sum.awk data", ("sum.awk",)),
        ("npm test", ("package.json",)),
        ("cd lib && sh a.sh", ("a.sh", "lib/a.sh")),
        ("cat a b | sh -e", ("a", "b")),
        ("cat a | python3 -m json.tool", ()),
        ("sh < run.sh", ()),
        ("/usr/bin/env node app.js", ("/usr/bin/env", "app.js")),
        ("((", ()),
    ],
)
def test_the_scripts_that_a_command_names(command: str, files: tuple[str, ...]) -> None:
    assert script_files(parse_script(command)) == files


def test_there_are_never_too_many() -> None:
    assert len(script_files(parse_script("; ".join(f"./x{n}" for n in range(100))))) == FILES_LIMIT
