"""`lodger doctor`: what is wrong on this machine, and how to mend it. Works with and without a running daemon."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final, Literal

from lodger_cli.places import paths
from lodger_cli.status import Facts, daemon_facts
from lodger_cli.terminal import Exit, say, say_json
from lodger_cli.wire import WireError
from lodger_daemon.service.settings import Settings, SettingsError, load_settings

LOW_DISK_BYTES: Final = 1024**3
GIT_MENDED_UPSTREAM: Final = (2, 50, 1)
"""From this release git carries the fixes of 2024 and 2025; older ones may carry them from their distribution."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at."""

    name: str
    verdict: Literal["ok", "warning", "wrong"]
    found: str
    advice: str = ""


def doctor(*, as_json: bool) -> None:
    checks = run_checks()
    if as_json:
        say_json([asdict(check) for check in checks])
    else:
        signs = {"ok": "ok      ", "warning": "warning ", "wrong": "WRONG   "}
        for check in checks:
            say(f"{signs[check.verdict]} {check.name}: {check.found}")
            if check.advice:
                say(f"          {check.advice}")
    wrong = any(check.verdict == "wrong" for check in checks)
    raise SystemExit(int(Exit.FAILED if wrong else Exit.OK))


def run_checks() -> list[Check]:
    """Every check, in the order a person would want them mended."""
    checks = [_python(), *_settings(), _git(), _search(), _disk()]
    try:
        settings = load_settings(paths().settings_file)
    except SettingsError:
        settings = Settings()
    checks.append(_sandbox(settings))
    checks += _service()
    try:
        facts = asyncio.run(daemon_facts())
    except WireError as error:
        checks.append(Check("daemon", "warning", str(error)))
        return checks
    checks.append(Check("daemon", "ok", f"running, version {facts['machine']['version']}"))
    probes: tuple[Callable[[Facts], list[Check]], ...] = (_link, _model, _memory, _store)
    for probe in probes:
        checks += probe(facts)
    return checks


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("Python", "ok", version)


def _settings() -> list[Check]:
    where = paths()
    try:
        load_settings(where.settings_file)
    except SettingsError as error:
        return [Check("settings", "wrong", str(error), "The daemon does not start with settings it cannot read.")]
    there = str(where.settings_file) if where.settings_file.exists() else "none, so the defaults hold"
    return [Check("settings", "ok", there)]


def _git() -> Check:
    git = shutil.which("git", path="/usr/bin:/usr/local/bin:/opt/homebrew/bin:/bin")
    if git is None:
        return Check("git", "wrong", "not found", "Install git: memory needs it.")
    text = subprocess.run([git, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout.strip()
    numbers = tuple(int(part) for part in text.split()[2].split(".")[:3] if part.isdigit()) if text else ()
    if numbers >= GIT_MENDED_UPSTREAM:
        return Check("git", "ok", text)
    return Check(
        "git",
        "warning",
        text,
        "Older than 2.50.1. A distribution's build may carry the security fixes all the same: keep it up to date.",
    )


def _search() -> Check:
    if shutil.which("rg"):
        return Check("ripgrep", "ok", "found")
    return Check("ripgrep", "warning", "not found", "Install ripgrep: searching folders is slow without it.")


def _disk() -> Check:
    where = paths().state
    folder = where if where.exists() else where.parent if where.parent.exists() else paths().home
    free = shutil.disk_usage(folder).free
    found = f"{free / 1024**3:.1f} GiB free at {folder}"
    if free < LOW_DISK_BYTES:
        return Check("disk", "warning", found, "Below 1 GiB. A full disk stops new messages until there is room again.")
    return Check("disk", "ok", found)


def _sandbox(settings: Settings) -> Check:
    from lodger_sandbox.contract import SandboxUnavailable
    from lodger_sandbox.probe import probe
    from lodger_sandbox.users import box_user

    try:
        report = probe(box_user(settings.machine.box_user if os.getuid() == 0 else None))
    except SandboxUnavailable as error:
        return Check("sandbox", "wrong", "no box can be started, so tools refuse", str(error))
    if not report.holds:
        return Check("sandbox", "wrong", "; ".join(report.failures) or "it does not hold", report.advice)
    return Check("sandbox", "ok", f"{report.backend} {report.version} holds")


def _service() -> list[Check]:
    from lodger_cli.units.look import look

    looked = look()
    if looked is None:
        return []  # `lodger up` in a terminal is as good, and the daemon's own line follows
    return [Check("service", looked.verdict, looked.found, looked.advice)]


def _link(facts: Facts) -> list[Check]:
    uplink = facts["uplink"]
    if uplink["state"] in ("off", "connected"):
        return [Check("hub", "ok", "none configured" if uplink["state"] == "off" else f"connected to {uplink['url']}")]
    return [
        Check("hub", "warning", f"{uplink['state']}: {uplink.get('reason') or 'trying'}", "It keeps trying by itself.")
    ]


def _model(facts: Facts) -> list[Check]:
    advice = "`lodger models` lists what can be used; `lodger ask --model HANDLE …` changes the agent's model."
    unserved = [
        Check("model", "warning", f"{agent['name']} has {agent['model']}, which no connected provider serves", advice)
        for agent in facts["agents"]
        if not agent["model_served"]
    ]
    model = facts["model"]
    if model["practice"]:
        advice = "Connect a real one with `lodger connect`."
        return [Check("model", "warning", "only the practice model", advice), *unserved]
    return [Check("model", "ok", f"{model['default']} for new agents"), *unserved]


def _memory(facts: Facts) -> list[Check]:
    bad = {"conflict", "invalid", "push_failed", "in_the_way"}
    return [
        Check("memory", "warning", f"{agent['name']}: {agent['memory']['outcome']}", agent["memory"].get("detail", ""))
        for agent in facts["agents"]
        if agent["memory"]["outcome"] in bad
    ]


def _store(facts: Facts) -> list[Check]:
    if facts["disk"]["store_full"]:
        return [Check("store", "wrong", "the disk is full", "Free some space; the daemon goes on by itself then.")]
    return []
