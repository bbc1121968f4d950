"""Which environment variables a tool call may bring along (ATTACKS.md A6). Pure.

An allow-list: a variable that makes some interpreter, loader or tool run or load something is not on it, and nobody has
to know all of those.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

ALLOWED_NAMES: Final = frozenset(
    (
        "AGENT_ID",
        "AGENT_NAME",
        "CONVERSATION_ID",
        "MEMORY_DIR",
        "GIT_AUTHOR_NAME",
        "GIT_AUTHOR_EMAIL",
        "GIT_COMMITTER_NAME",
        "GIT_COMMITTER_EMAIL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TERM",
        "COLUMNS",
        "LINES",
        "NO_COLOR",
        "FORCE_COLOR",
        "CI",
    )
)
ALLOWED_PREFIXES: Final = ("LODGER_TOOL_", "LC_", "LETTA_")
NEVER_SECRET: Final = re.compile(
    r"PATH|HOME|SHELL|IFS|ENV|USER|PWD|BASH_.*|BASHOPTS|SHELLOPTS|PS4|PROMPT_COMMAND|LD_.*|DYLD_.*|GCONV_PATH|MALLOC_.*"
    r"|PYTHON.*|PERL.*|RUBY.*|NODE_.*|JAVA_.*|_JAVA_.*|JDK_.*|DOTNET_.*|CORECLR_.*|COMPlus_.*|LUA_.*|PHP.*|R_.*"
    r"|GIT_(?!.*TOKEN).*|SSH_.*|EDITOR|VISUAL|PAGER|LESS.*|MANPAGER|BROWSER|.*_PROXY|.*PATH|.*OPTS|.*OPTIONS|.*FLAGS"
)
"""Names that are no secret whatever a store says: they change what programs do."""
REFERENCE: Final = re.compile(r"\$(?:\{([A-Z_][A-Z0-9_]*)|([A-Z_][A-Z0-9_]*))")


def refused_names(names: Iterable[str]) -> tuple[str, ...]:
    """Those that may not be set."""
    return tuple(sorted(name for name in names if not is_allowed(name)))


def is_allowed(name: str) -> bool:
    return name in ALLOWED_NAMES or name.startswith(ALLOWED_PREFIXES)


def referenced_secrets(command: str, secrets: Mapping[str, str]) -> dict[str, str]:
    """The secrets that a command names as `$NAME` or `${NAME…}`, and no others: only these get into its environment."""
    names = {braced or plain for braced, plain in REFERENCE.findall(command)}
    return {
        name: secrets[name]
        for name in sorted(names)
        if name in secrets and not NEVER_SECRET.fullmatch(name) and "\0" not in secrets[name]
    }
