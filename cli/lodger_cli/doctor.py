"""`lodger doctor`: what is wrong on this machine, and what to type to mend it. Works without a running daemon too."""

import asyncio
import time
from dataclasses import asdict

from lodger_cli.checks.finding import Finding, Problem, Verdict
from lodger_cli.checks.machine import look_at_machine
from lodger_cli.checks.running import look_at_daemon
from lodger_cli.places import NoDaemon
from lodger_cli.plain import plain
from lodger_cli.status import daemon_facts
from lodger_cli.terminal import Exit, say, say_json
from lodger_cli.wire import WireError

_SIGNS = {Verdict.OK: "ok", Verdict.WARNING: "warning", Verdict.WRONG: "WRONG"}


def doctor(*, as_json: bool) -> None:
    findings = run_checks()
    if as_json:
        say_json([asdict(finding) for finding in findings])
    else:
        for line in doctor_lines(findings):
            say(line)
    wrong = any(finding.verdict is Verdict.WRONG for finding in findings)
    raise SystemExit(int(Exit.FAILED if wrong else Exit.OK))


def run_checks() -> list[Finding]:
    """Every check, in the order a person would want them mended."""
    findings = look_at_machine()
    try:
        facts = asyncio.run(daemon_facts())
    except NoDaemon as error:
        return [*findings, _no_daemon(findings, str(error))]
    except WireError as error:
        advice = "It runs and does not answer. Commands that agents run go on while it is started anew."
        silent = Finding("daemon", Verdict.WRONG, str(error), Problem.DAEMON_SILENT, advice, "lodger service restart")
        return [*findings, silent]
    return [*findings, *look_at_daemon(facts, time.time())]


def _no_daemon(findings: list[Finding], error: str) -> Finding:
    if any(finding.name == "service" for finding in findings):
        return Finding(
            "daemon", Verdict.WRONG, error, Problem.NO_DAEMON, "A service is installed.", "lodger service restart"
        )
    advice = "Commands that need one start it for as long as they run."
    return Finding("daemon", Verdict.WARNING, error, Problem.NO_DAEMON, advice, "lodger up")


def doctor_lines(findings: list[Finding]) -> list[str]:
    """The same for a person."""
    lines = []
    for finding in findings:
        lines.append(f"{_SIGNS[finding.verdict]:8} {finding.name}: {plain(finding.found)}")
        if finding.advice:
            lines.append(f"         {plain(finding.advice)}")
        if finding.command:
            lines.append(f"         Type: {plain(finding.command)}")
    problems = dict.fromkeys(finding.problem for finding in findings if finding.problem is not None)
    if problems:
        lines.append(f"More on each in docs/troubleshooting.md: {', '.join(problems)}")
    return lines
