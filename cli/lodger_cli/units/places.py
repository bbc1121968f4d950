"""Where the service files of this machine lie, and who manages them."""

import os
import sys
from pathlib import Path

from lodger_cli.places import paths
from lodger_cli.units import launchd, systemd
from lodger_cli.units.manager import Launchd, Manager, Systemd
from lodger_cli.units.marker import Holder, holder
from lodger_cli.units.plan import Part, Scope


def service_folder(scope: Scope) -> Path:
    where = paths()
    if sys.platform == "darwin":
        return launchd.agents_folder(where.home)
    # Not LODGER_HOME: the service manager looks in its own place.
    return systemd.unit_folder(scope, Path(os.environ.get("XDG_CONFIG_HOME") or where.home / ".config"))


def service_manager(scope: Scope) -> Manager:
    return Launchd(os.environ) if sys.platform == "darwin" else Systemd(scope, os.environ)


def installed(scope: Scope) -> list[tuple[Part, Path, Holder]]:
    """In the order of their start."""
    names = {
        part: f"{launchd.label(part)}.plist" if sys.platform == "darwin" else systemd.unit_name(part) for part in Part
    }
    found = [(part, service_folder(scope) / name) for part, name in names.items()]
    return [(part, path, holder(path)) for part, path in found if path.exists()]
