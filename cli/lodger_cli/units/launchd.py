"""Property lists for macOS, for one user. Nobody has started one on a Mac yet."""

import plistlib
from pathlib import Path

from lodger_cli.units.marker import marked
from lodger_cli.units.plan import Installation, Part, ServiceFile


def label(part: Part) -> str:
    return f"lodger.{part.value}"


def agents_folder(home: Path) -> Path:
    return home / "Library" / "LaunchAgents"


def render(installation: Installation, folder: Path) -> tuple[ServiceFile, ...]:
    """One file for each part, in the order of their start."""
    return tuple(
        ServiceFile(part, folder / f"{label(part)}.plist", marked(_plist(installation, part), xml=True))
        for part in Part
        if part in installation.parts
    )


def _plist(installation: Installation, part: Part) -> str:
    logs = installation.state / "logs"
    job: dict[str, object] = {
        "Label": label(part),
        # launchd cannot rotate: the program keeps its own log, and only what it says before that comes to the other.
        "ProgramArguments": [*installation.arguments(part), "--log-file", str(logs / f"{part.value}.log")],
        "StandardErrorPath": str(logs / f"{part.value}.start.log"),
        "StandardOutPath": "/dev/null",
        "WorkingDirectory": str(installation.home),
        "EnvironmentVariables": {
            "PATH": "/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            **dict(installation.environment),
        },
        "RunAtLoad": True,
        "KeepAlive": True,
        "ThrottleInterval": 10,
        "ExitTimeOut": 30,
        # Boxes outlive the daemon, as under systemd.
        "AbandonProcessGroup": True,
        "ProcessType": "Interactive",
    }
    return plistlib.dumps(job, sort_keys=False).decode()
