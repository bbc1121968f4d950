"""What `lodger doctor` says about the services of this machine."""

import os
import pwd
import sys
from dataclasses import dataclass
from typing import Literal

from lodger_cli.units.manager import lingering
from lodger_cli.units.places import installed, service_manager
from lodger_cli.units.plan import Scope


@dataclass(frozen=True, slots=True)
class Looked:
    verdict: Literal["ok", "warning", "wrong"]
    found: str
    advice: str = ""


def look() -> Looked | None:
    """None when no service is installed, neither this user's nor the machine's. Blocking."""
    scopes = [Scope.USER] if sys.platform == "darwin" else list(Scope)
    found = [(scope, part) for scope in scopes for part, _, _ in installed(scope)]
    if not found:
        return None
    stopped = []
    for scope, part in found:
        manager = service_manager(scope)
        if not manager.reachable() and (state := manager.running(part).state) != "active":
            stopped.append(f"the {part} is {state}")
    if stopped:
        advice = "Look at why with `lodger service status`, then type `lodger service restart`."
        return Looked("wrong", "; ".join(stopped), advice)
    told = ", ".join(f"{part} ({scope})" for scope, part in found)
    of_user = any(scope is Scope.USER for scope, _ in found)
    if of_user and sys.platform != "darwin" and lingering(os.environ) is not True:
        user = pwd.getpwuid(os.getuid()).pw_name
        found_words = f"{told}; they end when you log out"
        return Looked("warning", found_words, f"Type once: sudo loginctl enable-linger {user}")
    return Looked("ok", told)
