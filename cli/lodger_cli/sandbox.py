"""`lodger sandbox run`: the box of an agent, around a command of yours."""

import os
from pathlib import Path
from typing import Final

from lodger_cli.places import paths
from lodger_cli.terminal import Exit, fail, say
from lodger_daemon.service.box_requests import BoxRequests
from lodger_daemon.service.settings import SettingsError, load_settings
from lodger_sandbox.contract import SandboxUnavailable
from lodger_sandbox.core.explain import explain as explain_policy
from lodger_sandbox.foreground import policy_for_command, run_in_box
from lodger_tools.box.contract import BoxProfile

POLICIES: Final = {
    "agent": BoxProfile.AGENT,
    "strict": BoxProfile.STRICT,
    "read-only": BoxProfile.READ_ONLY,
    "guard": BoxProfile.GUARD,
    "person": BoxProfile.PERSON,
    "memory-worker": BoxProfile.MEMORY_WORKER,
}


def run(argv: list[str], *, policy: str, explain: bool) -> None:
    """Ends the process with the command's exit code; `Exit.NO_BOX` when no box can be had."""
    profile = POLICIES.get(policy)
    if profile is None:
        fail(f"there is no policy {policy!r}; one of {', '.join(POLICIES)}", Exit.USAGE)
    command = argv[1:] if argv[:1] == ["--"] else argv
    if not command and not explain:
        fail("name the command: lodger sandbox run -- CMD", Exit.USAGE)
    where = paths()
    try:
        settings = load_settings(where.settings_file)
        request = BoxRequests(where, settings, os.environ).for_person(str(Path.cwd()), profile)
        if explain:
            say(explain_policy(policy_for_command(request, command)))
            return
        code = run_in_box(request, command)
    except (SandboxUnavailable, SettingsError) as error:
        fail(str(error), Exit.NO_BOX)
    raise SystemExit(code)
