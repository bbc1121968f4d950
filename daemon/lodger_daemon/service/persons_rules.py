"""The person's permission rules, as the turn machine asks them.

A machine with a ceiling takes no new rules from clients: an allow rule is stronger than any mode, so saving one would
be a way above the ceiling (attack A12). The person writes it into the settings on the machine itself.
"""

import asyncio
from dataclasses import replace

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
        self._ceiling = settings.permissions.ceiling
        self._home = home

    def judge(self, call: CallToJudge, mode: Mode) -> Verdict:
        verdict = judge(call, self._rules, mode, self._home)
        if isinstance(verdict, NeedsPerson) and self._ceiling is not Mode.UNRESTRICTED:
            return replace(verdict, suggestions=())
        return verdict

    def looks_at_paths(self, tool_name: str) -> bool:
        return self._rules.names_paths_of(tool_name)

    async def save_rule(self, suggestion: Suggestion, workspace: str) -> None:
        """Append the rule as it was shown. Raises: SettingsError; then nothing changed."""
        del workspace  # the rule itself names the folder it is for
        if self._ceiling is not Mode.UNRESTRICTED:
            raise SettingsError(
                f"this machine's ceiling is {self._ceiling.value}, so no client can add an allow rule; write "
                f"{suggestion.rule!r} into the settings on the machine itself"
            )
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
