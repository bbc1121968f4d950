"""The same policy as a macOS sandbox profile.

A preview: the text is tested, but it has not been run on a Mac. Seatbelt has no mounts, so what other systems cover is
denied here, and what is shown elsewhere is shown where it is. It cannot give a private /tmp, a private loopback, PID
isolation, a system call filter or a runner that no command can kill.
"""

from typing import Final

from lodger_sandbox.core.policy import Policy, PolicyRefused, Shown

_READABLE: Final = (
    "/Applications",
    "/Library",
    "/System",
    "/bin",
    "/dev",
    "/etc",
    "/opt",
    "/private/etc",
    "/private/var/db/timezone",
    "/private/var/select",
    "/sbin",
    "/usr",
    "/var/select",
)
_WRITABLE_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/tty", "/dev/dtracehelper")
_SERVICES: Final = (
    "com.apple.system.logger",
    "com.apple.system.notification_center",
    "com.apple.system.opendirectoryd.libinfo",
    "com.apple.trustd.agent",
)
"""Mach services a compiler or a shell needs. No securityd (key chains), pasteboard or Apple events."""


def render_seatbelt(policy: Policy, private_tmp: str) -> str:
    """The profile's text. `private_tmp` is a folder made for this box alone.

    Raises: PolicyRefused for a mount that is shown in another place than it has, which Seatbelt cannot do.
    """
    everything = (*policy.shown, *policy.carved)
    for item in everything:
        if item.source != item.target:
            raise PolicyRefused(f"{item.source} cannot be shown as {item.target} on macOS.")
    shown = (*everything, *policy.run)
    lines = [
        "(version 1)",
        "(deny default)",
        "(allow process-exec)",
        "(allow process-fork)",
        "(allow signal (target same-sandbox))",
        "(allow process-info* (target same-sandbox))",
        "(allow sysctl-read)",
        "(allow file-read-metadata)",
        f"(allow mach-lookup {' '.join(f'(global-name {_quoted(name)})' for name in _SERVICES)})",
        *(_rule("allow", "file-read*", path) for path in _READABLE),
        *(_rule("allow", "file-read* file-write*", path) for path in _WRITABLE_DEVICES),
        *(_rule("deny", "file-read* file-write*", folder) for folder in (policy.home, *policy.veils)),
        *(_rule("allow", "file-read*", item.source) for item in shown),
        *(_rule("allow", "file-write*", item.source) for item in everything if item.writable),
        _rule("allow", "file-read* file-write*", private_tmp),
        # The last rule that matches wins, so what is protected and what is hidden comes last.
        *(line for item in everything if not item.writable for line in _protected(item)),
        *(_rule("deny", "file-read* file-write*", item.path) for item in policy.hidden),
        *(_rule("allow", "file-read*", item.source) for item in policy.carved),
        *(_rule("allow", "file-write*", item.source) for item in policy.carved if item.writable),
        "(deny network*)",
    ]
    return "\n".join(lines) + "\n"


def _protected(item: Shown) -> list[str]:
    """No write, and no renaming of the folder it stands in, which would put another in its place."""
    parent = item.source.rpartition("/")[0]
    return [_rule("deny", "file-write*", item.source), f"(deny file-write-unlink (literal {_quoted(parent)}))"]


def _rule(verdict: str, operations: str, path: str) -> str:
    return f"({verdict} {operations} (subpath {_quoted(path)}))"


def _quoted(text: str) -> str:
    if any(ord(letter) < 32 for letter in text):
        raise PolicyRefused(f"{text!r} has control characters, which a profile cannot hold.")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
