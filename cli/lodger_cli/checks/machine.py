"""What can be seen of this machine without a running daemon. Everything here blocks."""

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from lodger_cli.checks.finding import Finding, Problem, Verdict, as_root, ok
from lodger_cli.places import paths
from lodger_daemon.service.settings import Settings, SettingsError, load_settings

LOW_DISK_BYTES: Final = 1024**3
GIT_MENDED_UPSTREAM: Final = (2, 50, 1)
"""From this release git carries the fixes of 2024 and 2025; older ones may carry them from their distribution."""
_GIT_PATH: Final = "/usr/bin:/usr/local/bin:/opt/homebrew/bin:/bin"
_INSTALLERS: Final = {
    "apt-get": ("apt-get install {}", "apt-get install --only-upgrade {}"),
    "dnf": ("dnf install {}", "dnf upgrade {}"),
    "pacman": ("pacman -S {}", "pacman -Syu {}"),
    "brew": ("brew install {}", "brew upgrade {}"),
}
_NAMESPACE_SETTINGS: Final = (
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("user.max_user_namespaces", "0", "15000"),
)
"""What keeps ordinary users from making a user namespace: name, the value that does, the value that does not."""


def look_at_machine() -> list[Finding]:
    """Every check, in the order a person would want them mended."""
    settings, settings_finding = _settings()
    return [ok("python", ".".join(map(str, sys.version_info[:3]))), settings_finding, git(), _search(), _disk(),
            _sandbox(settings), *_service()]  # fmt: skip


def git() -> Finding:
    found = shutil.which("git", path=_GIT_PATH)
    if found is None:
        advice = "Memory needs git."
        return Finding("git", Verdict.WRONG, "not found", Problem.GIT_MISSING, advice, _install("git"))
    text = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout.strip()
    if git_numbers(text) >= GIT_MENDED_UPSTREAM:
        return ok("git", text)
    advice = "Older than 2.50.1. A distribution's build may carry the security fixes all the same: keep it up to date."
    return Finding("git", Verdict.WARNING, text, Problem.GIT_OLD, advice, _install("git", again=True))


def git_numbers(text: str) -> tuple[int, ...]:
    """`git version 2.39.5 (Apple Git-154)` as (2, 39, 5); empty when it says something else."""
    words = text.split()
    return tuple(int(part) for part in words[2].split(".")[:3] if part.isdigit()) if len(words) > 2 else ()


def _settings() -> tuple[Settings, Finding]:
    """The settings, or the defaults where they cannot be read."""
    file = paths().settings_file
    try:
        settings = load_settings(file)
    except SettingsError as error:
        advice = "The daemon does not start with settings it cannot read. Mend what is named, or move the file away."
        command = f"mv {file} {file}.old"
        return Settings(), Finding("settings", Verdict.WRONG, str(error), Problem.SETTINGS_UNREADABLE, advice, command)
    return settings, ok("settings", str(file) if file.exists() else "no file, so the defaults hold")


def _search() -> Finding:
    if shutil.which("rg"):
        return ok("ripgrep", "found")
    advice = "Searching folders is slow without it."
    return Finding("ripgrep", Verdict.WARNING, "not found", Problem.RIPGREP_MISSING, advice, _install("ripgrep"))


def _disk() -> Finding:
    folder = next(folder for folder in (paths().state, *paths().state.parents) if folder.exists())
    free = shutil.disk_usage(folder).free
    found = f"{free / 1024**3:.1f} GiB free at {folder}"
    if free >= LOW_DISK_BYTES:
        return ok("disk", found)
    advice = "Below 1 GiB. On a full disk new messages are refused until there is room again. This shows what is large:"
    command = f"du -xh --max-depth=2 {paths().home} | sort -h | tail"
    return Finding("disk", Verdict.WARNING, found, Problem.DISK_LOW, advice, command)


def _sandbox(settings: Settings) -> Finding:
    from lodger_sandbox.contract import SandboxUnavailable
    from lodger_sandbox.probe import probe
    from lodger_sandbox.users import box_user

    wished = settings.machine.box_user if os.getuid() == 0 else None
    try:
        report = probe(box_user(wished))
    except SandboxUnavailable as error:
        return _no_box(wished, str(error))
    if report.holds:
        return ok("sandbox", f"{report.backend} {report.version} holds")
    found = "; ".join(report.failures) or "it does not hold"
    if report.backend == "none":
        return _no_box(wished, found)
    return Finding("sandbox", Verdict.WRONG, found, Problem.BOX_LEAKS, report.advice)


def _no_box(wished: str | None, error: str) -> Finding:
    found = "no box can be started, so tools refuse"
    if sys.platform == "linux" and shutil.which("bwrap", path="/usr/bin:/usr/local/bin:/bin") is None:
        return Finding("sandbox", Verdict.WRONG, found, Problem.BUBBLEWRAP_MISSING, error, _install("bubblewrap"))
    if wished is not None and not _is_user(wished):
        command = f"useradd --system --user-group --no-create-home --shell /usr/sbin/nologin {wished}"
        return Finding("sandbox", Verdict.WRONG, found, Problem.BOX_USER_MISSING, error, command)
    for name, refusing, allowing in _NAMESPACE_SETTINGS:
        if _kernel_setting(name) == refusing:
            command = as_root(f"sysctl -w {name}={allowing}")
            return Finding("sandbox", Verdict.WRONG, found, Problem.NO_BOX, error, command)
    return Finding("sandbox", Verdict.WRONG, found, Problem.NO_BOX, error)


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _kernel_setting(name: str) -> str:
    try:
        return Path("/proc/sys", *name.split(".")).read_text("ascii").strip()
    except OSError:
        return ""


def _service() -> list[Finding]:
    from lodger_cli.units.look import look

    found = look()
    return [] if found is None else [found]  # `lodger up` in a terminal is as good, and the daemon's own line follows


def _install(package: str, *, again: bool = False) -> str:
    for name, lines in _INSTALLERS.items():
        if shutil.which(name):
            command = lines[again].format(package)
            return command if name == "brew" else as_root(command)  # brew refuses to run as root
    return ""
