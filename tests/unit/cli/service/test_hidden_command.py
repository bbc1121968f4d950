"""A program that the units cannot see is refused before anything is written."""

import os
import pwd

import pytest

from lodger_cli.units.account import AccountMissing, command_reachable


@pytest.mark.parametrize("program", ["/tmp/lodger/.venv/bin/lodger", "/var/tmp/lodger/.venv/bin/lodger"])
def test_a_program_in_a_scratch_folder_is_refused(program: str) -> None:
    with pytest.raises(AccountMissing, match="do not see"):
        command_reachable([program], pwd.getpwuid(os.getuid()))
