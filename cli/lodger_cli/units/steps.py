"""What installing a service would do, in words: for `lodger service install --dry-run`. Changes nothing."""

import pwd
from collections.abc import Sequence

from lodger_cli.units.marker import Holder, holder
from lodger_cli.units.plan import SYSTEM_CONFIG, Installation, Scope, ServiceFile


def steps_to_install(
    installation: Installation, files: Sequence[ServiceFile], commands: Sequence[str], hindrance: str
) -> list[str]:
    """In their order. Blocking. Raises: OSError for a file that cannot be read.

    Args:
        commands: what starts the parts once their files are there.
        hindrance: why nothing would be started now; empty when it would be.
    """
    held = {file: holder(file.path) for file in files}
    strangers = [file for file in files if held[file] in (Holder.STRANGER, Holder.CHANGED)]
    if strangers:
        return [f"do nothing: {file.path} is {held[file]}. Move it away first" for file in strangers]
    steps = _steps_for_account(installation) if installation.scope is Scope.SYSTEM else []
    replaced = []
    for file in files:
        if held[file] is Holder.NOBODY:
            steps.append(f"write {file.path}")
        elif file.path.read_text("utf-8") == file.text:
            steps.append(f"leave {file.path}: it is the same")
        else:
            steps.append(f"replace {file.path}")
            replaced.append(file.part)
    if hindrance:
        return [*steps, f"start nothing: {hindrance}"]
    return [*steps, *commands, *(f"restart the {part}, as its file is another" for part in replaced)]


def _steps_for_account(installation: Installation) -> list[str]:
    try:
        pwd.getpwnam(installation.user)
        made = []
    except KeyError:
        made = [f"make the system user {installation.user}"]
    return [
        *made,
        f"see that {installation.user} can run {installation.command[0]}",
        f"give {SYSTEM_CONFIG} to {installation.user}",
    ]
