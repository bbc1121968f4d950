"""`lodger service`: make hub and daemon services of this machine, look at them, take them away."""

import os
import pwd
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lodger_cli.checks.finding import as_root
from lodger_cli.places import paths
from lodger_cli.serve import HubFlags
from lodger_cli.terminal import Exit, fail, note, say, say_json
from lodger_cli.units import launchd, systemd
from lodger_cli.units.account import AccountMissing, command_reachable, ensure_account, give_settings
from lodger_cli.units.manager import Manager, Systemd, lingering
from lodger_cli.units.marker import Holder, holder
from lodger_cli.units.places import installed, service_folder, service_manager
from lodger_cli.units.plan import (
    SYSTEM_CONFIG,
    SYSTEM_STATE,
    Credential,
    Installation,
    Part,
    Scope,
    ServiceFile,
    UnfitCredential,
    UnfitPath,
)
from lodger_cli.units.steps import steps_to_install

SYSTEM_PREFIX: Final = "sudo -u {} env HOME=/var/lib/lodger-home XDG_STATE_HOME=/var/lib XDG_CONFIG_HOME=/etc lodger"
UP_RUNS: Final = "`lodger up` runs here. End it with Ctrl-C first"
_CARRIED: Final = ("LODGER_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")
"""What decides where Lodger keeps things; a service manager starts programs without them."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks for."""

    system: bool
    as_json: bool
    dry_run: bool = False
    hub: HubFlags | None = None
    only: str = ""
    run_as: str = ""
    credentials: tuple[str, ...] = ()
    """`PROVIDER:FILE`, as typed."""


@dataclass(slots=True)
class Report:
    """What was done, for people and programs."""

    action: str
    files: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)
    lingering: bool | None = None

    def end(self, *, as_json: bool) -> None:
        """Print it and end with its exit code."""
        if as_json:
            facts = {"action": self.action, "files": self.files, "parts": self.parts, "lingering": self.lingering}
            say_json({**facts, "notes": self.notes, "problems": self.problems})
        else:
            for file in self.files:
                say(f"{file['done']:9} {file['path']}")
            for part in self.parts:
                told = f": {part['status']}" if part["status"] else ""
                say(f"{part['part']:9} {part['state']}, {part['enabled'] or 'not enabled'}{told}")
            for text in self.notes:
                note(text)
            for text in self.problems:
                note(f"lodger: {text}")
        raise SystemExit(int(Exit.FAILED if self.problems else Exit.OK))


def install(wish: Wish) -> None:
    """Write the files, enable and start them. Done twice, the second time changes nothing."""
    report = Report("install")
    scope = _scope(wish)
    try:
        installation = _installation(wish, scope)
        files = _render(installation)
    except UnfitCredential as error:
        fail(str(error), Exit.USAGE)
    except UnfitPath as error:
        fail(str(error))
    manager = service_manager(scope)
    commands = manager.by_hand(installation.parts, service_folder(scope))
    hindrance = manager.reachable() or (UP_RUNS if _is_up() else "")
    if wish.dry_run:
        _show(files, steps_to_install(installation, files, commands, hindrance), wish)
    _refuse_strangers(files)
    if scope is Scope.SYSTEM:
        _check_account(installation)
    if sys.platform == "darwin":  # launchd makes no folders
        (installation.state / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)
    changed = [file for file in files if _write(file, report)]
    if hindrance:
        report.notes.append(f"The files are in place, but nothing was started: {hindrance}.")
        report.notes += ["Then type:", *(f"  {line}" for line in commands)]
    else:
        for file in files:
            if (said := manager.start(file.part, file.path, restart=file in changed)).code != 0:
                report.problems.append(f"the {file.part} did not start: {said.text or said.code}")
        report.parts = _parts(manager, [file.part for file in files])
    _look_at_lingering(scope, report)
    if scope is Scope.SYSTEM:
        report.notes.append(f"Commands for it are typed as its user: {SYSTEM_PREFIX.format(installation.user)} COMMAND")
    report.end(as_json=wish.as_json)


def status(wish: Wish) -> None:
    """What is installed and what runs. Exits 1 when something installed does not run, 3 when nothing is installed."""
    report = Report("status")
    scope = _scope(wish)
    found = installed(scope)
    report.files = [{"path": str(path), "done": held.value} for _, path, held in found]
    if not found:
        fail("no service is installed here. `lodger service install` makes one", Exit.UNREACHABLE)
    manager = service_manager(scope)
    if away := manager.reachable():
        report.notes.append(f"What runs cannot be said: {away}.")
    else:
        report.parts = _parts(manager, [part for part, _, _ in found])
        report.problems = [f"the {part['part']} does not run" for part in report.parts if part["state"] != "active"]
    _look_at_lingering(scope, report)
    report.end(as_json=wish.as_json)


def restart(wish: Wish) -> None:
    """Restart what is installed, the hub first. Commands in boxes go on meanwhile."""
    report = Report("restart")
    scope = _scope(wish)
    found = installed(scope)
    manager = service_manager(scope)
    if not found:
        fail("no service is installed here. `lodger service install` makes one", Exit.UNREACHABLE)
    if away := manager.reachable():
        fail(f"nothing was restarted: {away}", Exit.UNREACHABLE)
    for part, path, _ in found:
        if not wish.dry_run and (said := manager.restart(part, path)).code != 0:
            report.problems.append(f"the {part} did not start again: {said.text or said.code}")
    report.parts = _parts(manager, [part for part, _, _ in found])
    report.end(as_json=wish.as_json)


def uninstall(wish: Wish) -> None:
    """Stop and remove what `install` wrote; settings, memory and messages stay."""
    report = Report("uninstall")
    scope = _scope(wish)
    manager = service_manager(scope)
    away = manager.reachable()
    for part, path, held in reversed(installed(scope)):
        if held is not Holder.OURS:
            report.problems.append(f"{path} was left alone: it is {held}. Remove it yourself if it shall go")
            continue
        if not wish.dry_run:
            if not away and (said := manager.remove(part, path)).code != 0:
                report.notes.append(f"The {part} could not be stopped by its manager: {said.text or said.code}")
            path.unlink(missing_ok=True)
        report.files.append({"path": str(path), "done": "would go" if wish.dry_run else "removed"})
    if report.files and not wish.dry_run and not away:
        manager.forget()
    if not report.files and not report.problems:
        report.notes.append("No service is installed here.")
    elif away:
        report.notes.append(f"If it still runs, it has to be stopped by hand: {away}.")
    report.end(as_json=wish.as_json)


def _scope(wish: Wish) -> Scope:
    if wish.system and sys.platform == "darwin":
        fail("on macOS there are services of users only: leave --system out", Exit.USAGE)
    if wish.system and os.geteuid() != 0 and not wish.dry_run and wish.hub is not None:
        fail("--system writes to /etc: type it with sudo, or leave --system out", Exit.USAGE)
    return Scope.SYSTEM if wish.system else Scope.USER


def _installation(wish: Wish, scope: Scope) -> Installation:
    """Raises: UnfitPath, UnfitCredential."""
    assert wish.hub is not None
    if wish.hub.tls_cert and not wish.hub.lan:
        fail("--tls-cert needs --lan here: this machine itself reaches its hub on loopback", Exit.USAGE)
    where = paths()
    return Installation(
        scope=scope,
        parts=_wanted(wish),
        command=_command(),
        state=where.state if scope is Scope.USER else SYSTEM_STATE,
        user=wish.run_as or "lodger" if scope is Scope.SYSTEM else "",
        environment=tuple((name, os.environ[name]) for name in _CARRIED if os.environ.get(name))
        if scope is Scope.USER
        else (),
        credentials=_credentials(wish),
        hub=_hub_arguments(wish.hub),
        port=wish.hub.port,
        home=where.home,
    )


def _credentials(wish: Wish) -> tuple[Credential, ...]:
    """Raises: UnfitCredential, also for a file that is not there: the daemon would not start."""
    if wish.credentials and sys.platform == "darwin":
        fail("launchd hands out no credentials: `lodger connect` keeps a key on this machine", Exit.USAGE)
    parted = [typed.partition(":") for typed in wish.credentials]
    found = tuple(Credential(provider, Path(file)) for provider, _, file in parted)
    for credential in found:
        if not credential.file.is_file():
            raise UnfitCredential(f"there is no file {credential.file}; put the key there and type this again")
    return found


def _hub_arguments(flags: HubFlags) -> tuple[str, ...]:
    words = flags.arguments()
    if flags.lan_port < 0:  # "not given": a unit file shall only say what somebody chose
        at = words.index("--lan-port")
        del words[at : at + 2]
    return tuple(words)


def _wanted(wish: Wish) -> tuple[Part, ...]:
    """Both, unless one is asked for, or the settings name a hub that is elsewhere."""
    if wish.only:
        return (Part(wish.only),)
    from lodger_daemon.service.settings import SettingsError, load_settings

    try:
        elsewhere = load_settings(paths().settings_file).hub.url if not wish.system else ""
    except SettingsError as error:
        fail(str(error))
    return (Part.DAEMON,) if elsewhere else (Part.HUB, Part.DAEMON)


def _command() -> tuple[str, ...]:
    """The installed command next to this Python, which is there after every kind of install; else this Python."""
    beside = Path(sys.executable).parent / "lodger"
    if beside.exists():
        return (str(beside),)
    found = shutil.which("lodger")
    return (str(Path(found).absolute()),) if found else (sys.executable, "-P", "-m", "lodger_cli.main")


def _render(installation: Installation) -> tuple[ServiceFile, ...]:
    folder = service_folder(installation.scope)
    if sys.platform == "darwin":
        return launchd.render(installation, folder)
    return systemd.render(installation, folder, Systemd(installation.scope, os.environ).version())


def _show(files: tuple[ServiceFile, ...], steps: list[str], wish: Wish) -> None:
    """`--dry-run`: the files as they would be and what would be done, and nothing else."""
    if wish.as_json:
        shown = [{"path": str(file.path), "text": file.text} for file in files]
        say_json({"action": "dry-run", "files": shown, "steps": steps})
    else:
        for file in files:
            say(f"# {file.path}\n{file.text}")
        say("# What it would do:")
        for step in steps:
            say(f"#   {step}")
    raise SystemExit(int(Exit.OK))


def _refuse_strangers(files: tuple[ServiceFile, ...]) -> None:
    for file in files:
        held = holder(file.path)
        if held in (Holder.STRANGER, Holder.CHANGED):
            fail(
                f"{file.path} is {held}, so nothing was written. Move it away, and put changes of yours into a "
                f"drop-in (`systemctl edit {file.path.name}`)",
            )


def _check_account(installation: Installation) -> None:
    try:
        account = ensure_account(installation.user)
        command_reachable(installation.command, account)
        if os.geteuid() == 0:
            give_settings(SYSTEM_CONFIG, account)
    except AccountMissing as error:
        fail(str(error))


def _write(file: ServiceFile, report: Report) -> bool:
    """True when the file is new or another than before."""
    before = file.path.read_text("utf-8") if file.path.exists() else None
    if before == file.text:
        report.files.append({"path": str(file.path), "done": "unchanged"})
        return False
    file.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    temporary = file.path.with_name(f".{file.path.name}.new")
    temporary.write_text(file.text, "utf-8")
    temporary.chmod(0o644)
    temporary.replace(file.path)
    report.files.append({"path": str(file.path), "done": "written" if before is None else "replaced"})
    return True


def _parts(manager: Manager, parts: list[Part]) -> list[dict[str, Any]]:
    facts = [(part, manager.running(part)) for part in parts]
    return [
        {
            "part": part.value,
            "state": running.state,
            "enabled": running.enabled,
            "status": running.status,
            "restarts": running.restarts,
        }
        for part, running in facts
    ]


def _is_up() -> bool:
    """Whether `lodger up` holds this machine's place."""
    import fcntl

    try:
        with (paths().state / "up.lock").open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _look_at_lingering(scope: Scope, report: Report) -> None:
    if scope is Scope.SYSTEM or sys.platform == "darwin":
        return
    report.lingering = lingering(os.environ)
    if report.lingering is not True:
        user = pwd.getpwuid(os.getuid()).pw_name
        sure = "Your services end when you log out" if report.lingering is False else "Nobody here can say whether your"
        rest = ", and start only at your next login" if report.lingering is False else " services run without a login"
        command = as_root(f"loginctl enable-linger {user}")
        report.notes.append(f"{sure}{rest}. Type once: {command}")
