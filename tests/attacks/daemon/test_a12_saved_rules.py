"""A12: an answer that brings a standing rule along is no way above the ceiling of the machine."""

from pathlib import Path

import pytest

from lodger_daemon.service.persons_rules import PersonsRules
from lodger_daemon.service.settings import SettingsError
from lodger_daemon.service.settings_file import SettingsFile
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.permissions.core.verdicts import Allowed, CallToJudge, NeedsPerson, Suggestion

OUTSIDE = CallToJudge("Write", {"file_path": "/srv/site/x", "content": ""}, "/work", "/work", None)
RULE = Suggestion("save-default", "Write(//srv/site/**)", "Always allow it")


def rules_under(ceiling: Mode, folder: Path) -> PersonsRules:
    file = SettingsFile(folder / "settings.toml")
    (folder / "settings.toml").write_text(f'[permissions]\nceiling = "{ceiling.value}"\n')
    return PersonsRules(file, file.load(), "/home/ada")


@pytest.mark.parametrize("ceiling", [Mode.STRICT, Mode.STANDARD, Mode.ACCEPT_EDITS])
async def test_a12_no_client_adds_a_rule_under_a_ceiling(ceiling: Mode, tmp_path: Path) -> None:
    rules = rules_under(ceiling, tmp_path)
    before = (tmp_path / "settings.toml").read_text()
    asked = rules.judge(OUTSIDE, ceiling)
    with pytest.raises(SettingsError, match="ceiling"):
        await rules.save_rule(RULE, "/work")
    await rules.reload()
    assert isinstance(asked, NeedsPerson)
    assert asked.suggestions == ()
    assert isinstance(rules.judge(OUTSIDE, ceiling), NeedsPerson)
    assert (tmp_path / "settings.toml").read_text() == before


async def test_a12_control_without_a_ceiling_the_rule_is_saved_and_stronger_than_any_mode(tmp_path: Path) -> None:
    rules = rules_under(Mode.UNRESTRICTED, tmp_path)
    await rules.save_rule(RULE, "/work")
    assert [type(rules.judge(OUTSIDE, mode)) for mode in Mode] == [Allowed] * 4


async def test_a12_what_the_person_wrote_on_the_machine_holds_under_a_ceiling(tmp_path: Path) -> None:
    rules = rules_under(Mode.STRICT, tmp_path)
    SettingsFile(tmp_path / "settings.toml").add_allow_rules([RULE.rule])
    await rules.reload()
    assert isinstance(rules.judge(OUTSIDE, Mode.STRICT), Allowed)
