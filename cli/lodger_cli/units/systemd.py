"""Unit files from the templates next to this file."""

from importlib.resources import files
from pathlib import Path
from typing import Final

from lodger_cli.units.marker import marked
from lodger_cli.units.plan import Credential, Installation, Part, Scope, ServiceFile
from lodger_sandbox.core.cgroup_plan import DAEMON_GROUP

STEPS_SINCE: Final = 254
"""The first systemd that can wait longer after each failure; older ones complain about the keys."""
SUBGROUP_SINCE: Final = 254
"""The first systemd that puts a service beside its groups. An older one could start no daemon in the midst of boxes
that outlive one, so there nothing is delegated."""
_FIRST_WAIT_S: Final = 2
_FIXED_WAIT_S: Final = 5
_LONGEST_WAIT_S: Final = 60


def unit_name(part: Part) -> str:
    return f"lodger-{part.value}.service"


def unit_folder(scope: Scope, config_home: Path) -> Path:
    return config_home / "systemd" / "user" if scope is Scope.USER else Path("/etc/systemd/system")


def render(installation: Installation, folder: Path, version: int) -> tuple[ServiceFile, ...]:
    """One file for each part, in the order of their start."""
    return tuple(
        ServiceFile(part, folder / unit_name(part), marked(_unit(installation, part, version)))
        for part in Part
        if part in installation.parts
    )


def _unit(installation: Installation, part: Part, version: int) -> str:
    template = files("lodger_cli.units").joinpath(f"{part.value}.{installation.scope.value}.service.in")
    environment = " ".join(_word(f"{name}={value}") for name, value in installation.environment)
    both = part is Part.DAEMON and Part.HUB in installation.parts
    lines = {
        "@COMMAND@": " ".join(map(_word, installation.arguments(part))),
        "@ENVIRONMENT@": f"Environment={environment}" if environment else "",
        "@CREDENTIALS@": "\n".join(map(_credential, installation.credentials)),
        "@WANTS@": f"Wants={unit_name(Part.HUB)}" if both else "",
        "@RESTART@": _restart(version),
        "@GROUPS@": _groups(version),
        "@USER@": installation.user,
    }
    text = template.read_text("utf-8")
    for name, line in lines.items():
        text = text.replace(name, line) if line else text.replace(f"{name}\n", "")
    return text


def _restart(version: int) -> str:
    if version < STEPS_SINCE:
        return f"RestartSec={_FIXED_WAIT_S}"
    return f"RestartSec={_FIRST_WAIT_S}\nRestartSteps=6\nRestartMaxDelaySec={_LONGEST_WAIT_S}"


def _groups(version: int) -> str:
    if version < SUBGROUP_SINCE:
        return ""
    return (
        "# Each box gets a control group of its own beside the daemon's, with limits for all that is in it.\n"
        f"Delegate=cpu memory pids\nDelegateSubgroup={DAEMON_GROUP}"
    )


def _credential(credential: Credential) -> str:
    return f"LoadCredential={credential.provider}:{_word(str(credential.file))}"


def _word(text: str) -> str:
    """As systemd.syntax wants it: a percent sign is a specifier, a space ends a word."""
    text = text.replace("%", "%%")
    return f'"{text}"' if " " in text else text
