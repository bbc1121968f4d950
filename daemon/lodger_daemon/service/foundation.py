"""What is there before any room of the daemon is: its folders, settings, database and name."""

from dataclasses import dataclass
from pathlib import Path

from lodger_daemon.service.box_requests import BoxRequests
from lodger_daemon.service.folders import make_private_folders, make_workspace
from lodger_daemon.service.options import DaemonOptions
from lodger_daemon.service.settings import Settings
from lodger_daemon.service.settings_file import SettingsFile
from lodger_daemon.store.audit_log import AuditLog
from lodger_daemon.store.database import Database
from lodger_daemon.system_clock import SystemClock
from lodger_daemon.uplink.device_id import load_device_id


@dataclass(frozen=True, slots=True)
class Foundation:
    """What is there before any room is."""

    settings: Settings
    settings_file: SettingsFile
    requests: BoxRequests
    database: Database
    audit: AuditLog
    workspace: Path
    device_id: str
    name: str
    clock: SystemClock


def lay_foundation(options: DaemonOptions) -> Foundation:
    """Blocking: folders, settings, database. Raises: SettingsError, StoreError, OSError."""
    paths, clock = options.paths, SystemClock()
    file = SettingsFile(paths.settings_file)
    settings = file.load()
    make_private_folders(paths)
    requests = BoxRequests(paths, settings, options.environment)
    workspace = Path(settings.machine.workspace or paths.workspace)
    make_workspace(workspace, requests)
    database = Database.open(paths.database, lock=paths.daemon_lock, clock=clock)
    device_id = load_device_id(paths.state / "device-id")
    name = settings.machine.name or options.host_name
    return Foundation(settings, file, requests, database, AuditLog(database, clock), workspace, device_id, name, clock)
