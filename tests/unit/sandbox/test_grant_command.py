"""The line a person is told to type, whatever the folder is called."""

import shlex

from lodger_sandbox.contract import BoxUser
from lodger_sandbox.users import grant_command


def test_a_name_with_a_quote_stays_one_word() -> None:
    name = "/work/it's'; touch owned; '"
    user = BoxUser(name="lodger-box", uid=990, gid=990)
    assert shlex.split(grant_command(user, name)) == [
        *("setfacl", "-R", "-m", "u:lodger-box:rwX", "-m", "d:u:lodger-box:rwX"),
        name,
    ]
