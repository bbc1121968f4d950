"""What `lodger status` and `lodger doctor` say about the services of this machine."""

import os
import pwd
import sys

from lodger_cli.checks.finding import Finding, Problem, Verdict, as_root, ok
from lodger_cli.units.manager import lingering
from lodger_cli.units.places import installed, service_manager
from lodger_cli.units.plan import Scope


def look() -> Finding | None:
    """None when no service is installed, neither this user's nor the machine's. Blocking."""
    scopes = [Scope.USER] if sys.platform == "darwin" else list(Scope)
    found = [(scope, part) for scope in scopes for part, _, _ in installed(scope)]
    if not found:
        return None
    stopped = []
    for scope, part in found:
        manager = service_manager(scope)
        if not manager.reachable() and (state := manager.running(part).state) != "active":
            stopped.append((scope, f"the {part} is {state}"))
    if stopped:
        advice = "`lodger logs` and `lodger service status` say why."
        command = (
            as_root("lodger service restart --system") if stopped[0][0] is Scope.SYSTEM else "lodger service restart"
        )
        words = "; ".join(text for _, text in stopped)
        return Finding("service", Verdict.WRONG, words, Problem.SERVICE_STOPPED, advice, command)
    told = ", ".join(f"{part} ({scope})" for scope, part in found)
    of_user = any(scope is Scope.USER for scope, _ in found)
    if not of_user or sys.platform == "darwin":
        return ok("service", told)
    if lingering(os.environ) is not True:
        user = pwd.getpwuid(os.getuid()).pw_name
        advice = "Services of a user run only while somebody is logged in, unless they may linger."
        command = as_root(f"loginctl enable-linger {user}")
        words = f"{told}; they end when you log out"
        return Finding("service", Verdict.WARNING, words, Problem.NO_LINGERING, advice, command)
    return ok("service", f"{told}, also while nobody is logged in")
