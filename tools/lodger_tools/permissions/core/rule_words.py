"""What a standing rule lets pass, in words for the person who is asked to keep it: neither less nor more."""

from typing import Final, assert_never

from lodger_tools.permissions.core.rules import CommandRule, PathRule, Rule, ToolRule

_DOING: Final = {
    "Read": "reading",
    "Write": "writing",
    "Edit": "changing",
    "Glob": "listing",
    "Grep": "searching in",
}
WHOLE_FOLDER: Final = "/**"


def rule_words(rule: Rule) -> str:
    """One sentence, which ends with the rule itself as it stands in the settings."""
    return f"Always allow, on this machine and for every agent: {_matched(rule)}. Kept as {rule.source}"


def _matched(rule: Rule) -> str:
    match rule:
        case CommandRule(words, prefix):
            command = " ".join(words)
            what = f"commands that begin with “{command}”, whatever follows" if prefix else f"exactly “{command}”"
            return f"{what}, if no variable is set and no output goes to a file"
        case PathRule(tool, glob):
            return f"{_DOING.get(tool, tool)} {_place(glob)}"
        case ToolRule(tool):
            if tool.endswith("*"):
                return f"every call of each tool whose name begins with {tool[:-1]}"
            return f"every call of {tool}"
        case _:
            assert_never(rule)


def _place(glob: str) -> str:
    folder = glob.removesuffix(WHOLE_FOLDER)
    if glob.startswith("//") and folder != glob and not set(folder) & set("*?"):
        return f"any file in {folder[1:]} and in the folders below it"
    return f"every path that matches {glob}"
