"""The permission decision: deny, then ask, then allow rules, then the mode (BEHAVIOUR.md D2, LODGER).

Rules guard against accidents; the box is what holds against a hostile model. So mode `standard` lets run what the box
contains and asks for what leaves it.
"""

import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, assert_never

from lodger_tools.catalogue.background_tasks import TASK_TOOLS
from lodger_tools.catalogue.history_search import HISTORY_TOOL
from lodger_tools.catalogue.person_questions import ASK_TOOL
from lodger_tools.permissions.core.command_calls import as_command, typed_text
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.permissions.core.reach import Reach, own_folders, path_of, reach_of
from lodger_tools.permissions.core.reading import only_reads
from lodger_tools.permissions.core.rule_words import rule_words
from lodger_tools.permissions.core.rules import (
    COMMAND_TOOL,
    FILE_TOOLS,
    CommandRule,
    PathRule,
    Rule,
    ToolRule,
    command_allowed,
    command_hit,
    parse_rule,
    path_matches,
    suggest_command_rule,
    tool_matches,
)
from lodger_tools.permissions.core.shell import ParsedScript, parse_script
from lodger_tools.permissions.core.verdicts import Allowed, CallToJudge, Denied, NeedsPerson, Suggestion, Verdict
from lodger_tools.permissions.core.wrappers import is_readable

SAVE_SUGGESTION_ID: Final = "save-default"
"""The one suggestion id of the wire (PROTOCOL.md 5.7)."""
_READERS: Final = frozenset({"Read", "Glob", "Grep"})
_WRITERS: Final = frozenset({"Write", "Edit"})


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The person's rules."""

    deny: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    allow: tuple[Rule, ...] = ()
    ask_every_command: bool = False
    """Mode `standard` asks for every shell command that is not known to read only, as the peer does."""

    def names_commands(self) -> bool:
        """Whether any rule looks at the words of a command: only then is the shell's grammar needed."""
        return self.ask_every_command or any(
            isinstance(rule, CommandRule) for rule in (*self.deny, *self.ask, *self.allow)
        )

    def names_paths_of(self, tool_name: str) -> bool:
        """Whether any rule looks at the paths of this tool: only then is it asked where their links lead."""
        return any(
            isinstance(rule, PathRule) and rule.tool == tool_name for rule in (*self.deny, *self.ask, *self.allow)
        )

    def restrict_commands(self) -> bool:
        """Whether a deny or ask rule looks at the words of a command."""
        return any(isinstance(rule, CommandRule) for rule in (*self.deny, *self.ask))


def judge(call: CallToJudge, rules: RuleSet, mode: Mode, home: str) -> Verdict:
    """Decide one call by its exact arguments. Pure: the same call gives the same verdict."""
    typed = typed_text(call)
    if typed == "":
        return Allowed("nothing is typed")
    named, call = call, as_command(call)
    script = _script_of(call) if mode is Mode.STRICT or rules.names_commands() else None
    if rule := _hit(rules.deny, call, script, home) or _plain_hit(rules.deny, named, home, any):
        return Denied(f"the rule {rule.source!r} of this machine's person denies it", rule.source)
    if rule := _hit(rules.ask, call, script, home) or _plain_hit(rules.ask, named, home, any):
        return NeedsPerson(f"the rule {rule.source!r} asks for it", rule.source)
    if script is not None and rules.restrict_commands() and not is_readable(script):
        # Otherwise padding or an odd character would be a way around every deny rule.
        return NeedsPerson("its command cannot be read with certainty, and rules of this machine look at commands")
    if typed and rules.restrict_commands() and not typed.endswith(("\n", "\r")):
        return NeedsPerson("a part of a line cannot be judged, and rules of this machine look at commands")
    reach = reach_of(call, home)
    # The words of a command say nothing of the folder it is run in: saved for the box, they do not open another.
    allowing = script if reach.inside else None
    if call.tool_name == ASK_TOOL:
        return NeedsPerson("the agent has a question for you")
    if call.tool_name == HISTORY_TOOL:
        return Allowed("it reads the agent's own conversations only")
    if call.tool_name in TASK_TOOLS:
        return Allowed("it looks after the agent's own commands only")
    if rule := _allow_hit(rules.allow, call, allowing, home) or _plain_hit(rules.allow, named, home, all):
        return Allowed("a rule allows it", rule.source)
    match mode:
        case Mode.UNRESTRICTED:
            return Allowed("mode unrestricted")
        case Mode.STRICT:
            return _strict(call, reach, script, home)
        case Mode.STANDARD:
            return _standard(call, reach, script, rules, home)
        case Mode.ACCEPT_EDITS:
            if call.tool_name in _WRITERS and reach.inside:
                return Allowed("mode acceptEdits")
            return _standard(call, reach, script, rules, home)
        case _:
            assert_never(mode)


def _strict(call: CallToJudge, reach: Reach, script: ParsedScript | None, home: str) -> Verdict:
    if call.tool_name in _READERS and reach.inside:
        return Allowed("reading inside the workspace")
    return NeedsPerson(
        "mode strict asks for every command and every write", suggestions=_suggestions(call, script, home)
    )


def _standard(call: CallToJudge, reach: Reach, script: ParsedScript | None, rules: RuleSet, home: str) -> Verdict:
    if call.tool_name == COMMAND_TOOL:
        if rules.ask_every_command:
            if reach.inside and script is not None and only_reads(script, call.cwd, own_folders(call)):
                return Allowed("it only reads, inside the box")
            return NeedsPerson(
                "every command is asked for on this machine", suggestions=_suggestions(call, script, home)
            )
        if reach.inside:
            return Allowed("the box contains it")
        return NeedsPerson(reach.reason)
    if call.tool_name not in FILE_TOOLS:
        return NeedsPerson("this tool does not run in the box")
    if reach.inside:
        return Allowed("the box contains it")
    return NeedsPerson(reach.reason, suggestions=_suggestions(call, script, home))


def _paths_of(call: CallToJudge, home: str) -> tuple[str, ...]:
    named = path_of(call, home)
    return (named,) if call.real_path is None else (named, call.real_path)


def _suggestions(call: CallToJudge, script: ParsedScript | None, home: str) -> tuple[Suggestion, ...]:
    rule: str | None = None
    if script is not None:
        # A rule about words would not spare the next question about a folder outside.
        if script.certain and len(script.commands) == 1 and reach_of(call, home).inside:
            rule = suggest_command_rule(script.commands[0])
    elif call.tool_name in FILE_TOOLS:
        folder = posixpath.dirname(path_of(call, home))
        # In a rule a folder's own star would stand for other folders too.
        if folder not in {"", "/"} and not set(folder) & set("*?"):
            rule = f"{call.tool_name}(/{folder}/**)"
    if rule is None:
        return ()
    return (Suggestion(SAVE_SUGGESTION_ID, rule, rule_words(parse_rule(rule))),)


def _script_of(call: CallToJudge) -> ParsedScript | None:
    if call.tool_name != COMMAND_TOOL:
        return None
    command = call.arguments.get("command")
    return parse_script(command if isinstance(command, str) else "")


def _hit(rules: tuple[Rule, ...], call: CallToJudge, script: ParsedScript | None, home: str) -> Rule | None:
    commands = tuple(rule for rule in rules if isinstance(rule, CommandRule))
    if script is not None and (rule := command_hit(commands, script)):
        return rule
    return _plain_hit(rules, call, home, any)


def _allow_hit(rules: tuple[Rule, ...], call: CallToJudge, script: ParsedScript | None, home: str) -> Rule | None:
    commands = tuple(rule for rule in rules if isinstance(rule, CommandRule))
    if script is not None and (rule := command_allowed(commands, script)):
        return rule
    return _plain_hit(rules, call, home, all)


def _plain_hit(
    rules: tuple[Rule, ...], call: CallToJudge, home: str, enough: Callable[[Iterable[bool]], bool]
) -> Rule | None:
    """A path is compared as it is named and as its links lead: one of the two hits a deny or ask rule (`any`), both
    are needed for an allow rule (`all`)."""
    for rule in rules:
        match rule:
            case ToolRule():
                if tool_matches(rule, call.tool_name):
                    return rule
            case PathRule():
                if call.tool_name in FILE_TOOLS and enough(
                    path_matches(rule, call.tool_name, path, call.workspace, home) for path in _paths_of(call, home)
                ):
                    return rule
            case CommandRule():
                pass
            case _:
                assert_never(rule)
    return None
