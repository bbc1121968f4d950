"""A policy in words, for `lodger doctor` and `lodger sandbox run --explain`."""

from collections.abc import Iterable

from lodger_sandbox.core.policy import Policy, Shown


def explain(policy: Policy) -> str:
    """Plain text, one fact a line."""
    limits = policy.limits
    lines = [
        f"Profile {policy.profile.value} in {policy.workspace}.",
        "The machine is visible read-only, except:",
        *_listed("empty, because it belongs to others or holds sockets", policy.veils),
        *_listed("private, empty and in memory", (folder.path for folder in policy.private)),
        *_listed("hidden", (item.path for item in policy.hidden)),
        "Shown:",
        *(_shown(item) for item in (*policy.shown, *policy.carved, *policy.run)),
        *_listed("made on this machine, so that it can be protected", (item.path for item in policy.to_create)),
        "No network, no processes of the machine, no new namespaces, no privileges, no setuid files.",
        f"At most {limits.processes} processes, {_mib(limits.memory_bytes)} of memory each, "
        f"files of {_mib(limits.file_size_bytes)}, {_mib(limits.tmp_bytes)} in each temporary folder, "
        f"{_mib(limits.home_bytes)} in the home.",
        f"Environment: {', '.join(sorted(policy.environment)) or 'empty'}.",
    ]
    return "\n".join(lines) + "\n"


def _listed(what: str, paths: Iterable[str]) -> list[str]:
    return [f"  {path}: {what}" for path in paths]


def _shown(item: Shown) -> str:
    access = "writable" if item.writable else "read-only"
    place = item.target if item.source == item.target else f"{item.target} (from {item.source})"
    return f"  {place}: {access}; {item.why}"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes // 1024**2} MiB"
