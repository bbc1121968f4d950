from dataclasses import replace

import pytest

from lodger_sandbox.contract import BoxLimits
from lodger_sandbox.core.policy import Hidden, Policy, PolicyRefused, Profile, Shown
from lodger_sandbox.core.seatbelt import render_seatbelt

POLICY = Policy(
    profile=Profile.AGENT,
    workspace="/Users/ada/w",
    home="/Users/ada",
    veils=("/Users",),
    private=(),
    shown=(
        Shown("/Users/ada/w", "/Users/ada/w", True, "workspace"),
        Shown("/Users/ada/w/.git/hooks", "/Users/ada/w/.git/hooks", False, "hooks"),
    ),
    hidden=(Hidden("/Users/ada/w/state", True),),
    carved=(Shown("/Users/ada/w/state/c", "/Users/ada/w/state/c", True, "checkout"),),
    run=(Shown("/opt/runner", "/run/lodger/x", False, "program"),),
    to_create=(),
    command=(),
    limits=BoxLimits(),
)


def test_rules_in_order() -> None:
    lines = render_seatbelt(POLICY, "/private/tmp/box").splitlines()
    order = [
        "(deny default)",
        '(deny file-read* file-write* (subpath "/Users/ada"))',
        '(allow file-read* (subpath "/Users/ada/w"))',
        '(allow file-write* (subpath "/Users/ada/w"))',
        '(allow file-read* file-write* (subpath "/private/tmp/box"))',
        '(deny file-write* (subpath "/Users/ada/w/.git/hooks"))',
        '(deny file-write-unlink (literal "/Users/ada/w/.git"))',
        '(deny file-read* file-write* (subpath "/Users/ada/w/state"))',
        '(allow file-write* (subpath "/Users/ada/w/state/c"))',
        "(deny network*)",
    ]
    places = [max(index for index, line in enumerate(lines) if line == wanted) for wanted in order]
    assert places == sorted(places)
    assert lines[0] == "(version 1)"
    assert not any("securityd" in line or "iokit" in line or "sysctl-write" in line for line in lines)


def test_names_are_quoted() -> None:
    odd = Shown('/w/"x\\', '/w/"x\\', True, "odd")
    assert '(subpath "/w/\\"x\\\\")' in render_seatbelt(replace(POLICY, shown=(odd,)), "/t")


def test_what_seatbelt_cannot_say_is_refused() -> None:
    with pytest.raises(PolicyRefused, match="cannot be shown as"):
        render_seatbelt(replace(POLICY, shown=(Shown("/a", "/b", False, "moved"),)), "/t")
    with pytest.raises(PolicyRefused, match="control characters"):
        render_seatbelt(replace(POLICY, home="/a\nb"), "/t")
