"""The person's permission rules, as the turn machine asks them."""

import asyncio
from dataclasses import replace

from lodger_daemon.service.persons_lists import PersonsLists
from lodger_daemon.service.settings import Settings, SettingsError
from lodger_daemon.service.settings_file import SettingsFile
from lodger_tools.permissions.core.judge import judge
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.permissions.core.verdicts import CallToJudge, NeedsPerson, Suggestion, Verdict


class PersonsRules:
    """Judges calls by the settings file's rules; a saved suggestion holds from the next call on."""

    def __init__(self, file: SettingsFile, settings: Settings, home: str) -> None:
        self._file = file
        self._rules = settings.permissions.rule_set()
        self._lists = PersonsLists(settings.permissions.ceiling)
        self._home = home

    def judge(self, call: CallToJudge, mode: Mode) -> Verdict:
        verdict = judge(call, self._rules, mode, self._home)
        if isinstance(verdict, NeedsPerson) and not self._lists.may_grow:
            return replace(verdict, suggestions=())
        return verdict

    def looks_at_paths(self, tool_name: str) -> bool:
        return self._rules.names_paths_of(tool_name)

    async def save_rule(self, suggestion: Suggestion, workspace: str) -> None:
        """Append the rule as it was shown. Raises: SettingsError; then nothing changed."""
        del workspace  # the rule itself names the folder it is for
        settings = await self._lists.add(self._file.add_allow_rules, [suggestion.rule], "add an allow rule")
        self._rules = settings.permissions.rule_set()

    async def reload(self) -> int:
        """Take the rules as the file has them now; returns how many. Raises: ValueError; then the old ones hold."""
        try:
            settings = await asyncio.to_thread(self._file.load)
        except SettingsError as error:
            raise ValueError(str(error)) from error
        self._rules = settings.permissions.rule_set()
        return len(self._rules.deny) + len(self._rules.ask) + len(self._rules.allow)
