"""The person's permission rules, as the turn machine asks them."""

import asyncio

from lodger_daemon.service.settings import Settings, SettingsError
from lodger_daemon.service.settings_file import SettingsFile
from lodger_tools.permissions.core.judge import judge
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.permissions.core.verdicts import CallToJudge, Suggestion, Verdict


class PersonsRules:
    """Judges calls by the settings file's rules; a saved suggestion holds from the next call on."""

    def __init__(self, file: SettingsFile, settings: Settings, home: str) -> None:
        self._file = file
        self._rules = settings.permissions.rule_set()
        self._home = home

    def judge(self, call: CallToJudge, mode: Mode) -> Verdict:
        return judge(call, self._rules, mode, self._home)

    async def save_rule(self, suggestion: Suggestion, workspace: str) -> None:
        """Append the rule as it was shown. Raises: SettingsError; then nothing changed."""
        del workspace  # the rule itself names the folder it is for
        settings = await asyncio.to_thread(self._file.add_rule, "allow", suggestion.rule)
        self._rules = settings.permissions.rule_set()

    async def reload(self) -> int:
        """Take the rules as the file has them now; returns how many. Raises: ValueError; then the old ones hold."""
        try:
            settings = await asyncio.to_thread(self._file.load)
        except SettingsError as error:
            raise ValueError(str(error)) from error
        self._rules = settings.permissions.rule_set()
        return len(self._rules.deny) + len(self._rules.ask) + len(self._rules.allow)
