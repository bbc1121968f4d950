"""A policy in words, for `lodger doctor` and `lodger sandbox run --explain`."""

from collections.abc import Iterable
from typing import assert_never

from lodger_sandbox.core.policy import Policy, Profile, Shown


def explain(policy: Policy) -> str:
    """Plain text, one fact a line."""
    limits = policy.limits
    lines = [
        f"Policy {policy.profile.value.replace('_', '-')} in {policy.workspace}: {_purpose(policy.profile)}.",
        "The machine is visible read-only, except:",
        *_listed("empty, because it belongs to others or holds sockets", policy.veils),
        *_listed("private, empty and in memory", (folder.path for folder in policy.private)),
        *_listed("hidden", (item.path for item in policy.hidden)),
        "Shown:",
        *(_shown(item) for item in (*policy.shown, *policy.carved, *policy.run)),
        *_listed("read-only; written for this box", (file.target for file in policy.written)),
        *_listed("made on this machine, so that it can be protected", (item.path for item in policy.to_create)),
        *_outside(policy),
        "No processes of the machine, no new namespaces, no privileges, no setuid files.",
        f"At most {limits.processes} processes, {_mib(limits.memory_bytes)} of memory each, "
        f"files of {_mib(limits.file_size_bytes)}, {_mib(limits.tmp_bytes)} in each temporary folder, "
        f"{_mib(limits.home_bytes)} in the home.",
        *([f"Yields the processor to the rest of the machine (nice {policy.nice})."] if policy.nice else []),
        f"Environment: {', '.join(sorted(policy.environment)) or 'empty'}.",
    ]
    return "\n".join(lines) + "\n"


def _purpose(profile: Profile) -> str:
    match profile:
        case Profile.AGENT:
            return "an agent's tools; .git/config may be written, and the daemon compares it after each call"
        case Profile.STRICT:
            return "an agent's tools, with a .git/config that cannot be written"
        case Profile.READ_ONLY:
            return "looking only; nothing but private folders can be written"
        case Profile.GUARD:
            return "the daemon's own look at a repository; of the workspace it sees .git alone"
        case Profile.PERSON:
            return "a command of yours"
        case Profile.MEMORY_WORKER:
            return "the daemon's own work on an agent's memory"
        case _:
            assert_never(profile)


def _outside(policy: Policy) -> list[str]:
    has_way_out = policy.profile in (Profile.AGENT, Profile.STRICT)
    more = (
        " An agent's box has one way out, the daemon's broker, which lets through what your list of hosts allows."
        if has_way_out
        else ""
    )
    return [f"No network.{more}"]


def _listed(what: str, paths: Iterable[str]) -> list[str]:
    return [f"  {path}: {what}" for path in paths]


def _shown(item: Shown) -> str:
    access = "writable" if item.writable else "read-only"
    place = item.target if item.source == item.target else f"{item.target} (from {item.source})"
    return f"  {place}: {access}; {item.why}"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes // 1024**2} MiB"
