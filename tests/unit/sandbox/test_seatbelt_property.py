"""The rendered rules, read as macOS reads them: the last that matches wins. Whatever is asked for, nothing below a mask
is read or written, nothing is written but what is shown so, and nothing protected is written or replaced."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from lodger_sandbox.contract import BoxRequest, BoxUser, Mount
from lodger_sandbox.core.git_guard import protected_paths
from lodger_sandbox.core.make_policy import Program, make_policy, paths_to_look_at
from lodger_sandbox.core.paths import is_within
from lodger_sandbox.core.policy import HostFacts, Interpreter, PathKind, Policy, PolicyRefused
from lodger_sandbox.core.seatbelt import render_seatbelt

RULE = re.compile(r'\((allow|deny) ([^()]+?) ?\((subpath|literal) "([^"]*)"\)\)')
NAMES = st.sampled_from(("a", "b", "state", ".cargo", "bin"))
TOPS = st.sampled_from(("/Users", "/Users/ada", "/srv", "/Users/ada/.cargo"))
PATHS = st.builds(lambda top, rest: "/".join((top, *rest)), TOPS, st.lists(NAMES, max_size=3))
PRIVATE_TMP = "/private/tmp/box"


def allowed(lines: list[str], operation: str, path: str) -> bool:
    verdict = False
    for line in lines:
        found = RULE.fullmatch(line)
        if found is None:
            continue
        word, operations, kind, place = found.groups()
        matches = is_within(path, place) if kind == "subpath" else path == place
        if matches and any(
            one == operation or (one.endswith("*") and operation.startswith(one[:-1])) for one in operations.split()
        ):
            verdict = word == "allow"
    return verdict


def policy_of(request: BoxRequest, files: set[str]) -> Policy | None:
    program = Program("/opt/lodger/runner")
    kinds = dict.fromkeys(paths_to_look_at(request, program), PathKind.FOLDER)
    kinds |= {path: PathKind.FILE for path in kinds if path in files}
    kinds |= dict.fromkeys(protected_paths(request.workspace)[2:], PathKind.FILE)
    try:
        return make_policy(
            request, program, HostFacts(kinds, Interpreter("/usr", "/usr/bin/python3", open_to_all=True))
        )
    except PolicyRefused:
        return None


@settings(max_examples=400, deadline=None)
@given(
    workspace=PATHS,
    masks=st.lists(PATHS, max_size=3),
    mounts=st.lists(st.builds(lambda path, writable: Mount(path, path, writable), PATHS, st.booleans()), max_size=2),
    profile=st.sampled_from(("agent", "strict", "memory_worker", "person", "read_only")),
    files=st.sets(PATHS, max_size=2),
    tail=st.lists(NAMES, max_size=2),
)
def test_the_rendered_rules_keep_what_the_policy_promises(
    workspace: str, masks: list[str], mounts: list[Mount], profile: str, files: set[str], tail: list[str]
) -> None:
    request = BoxRequest(
        workspace=workspace,
        profile=profile,  # type: ignore[arg-type]
        user=BoxUser(501, 20, "ada"),
        home="/Users/ada",
        mounts=tuple(mounts),
        masks=tuple(masks),
    )
    policy = policy_of(request, files)
    if policy is None:
        return
    lines = render_seatbelt(policy, PRIVATE_TMP).splitlines()
    named = [mount.source for mount in mounts] + ([workspace] if profile == "memory_worker" else [])
    for mask in masks:
        secret = "/".join((mask, *tail))
        if not any(is_within(secret, source) and is_within(source, mask) for source in named):
            assert not allowed(lines, "file-read-data", secret), (secret, lines)
            assert not allowed(lines, "file-write-data", secret), (secret, lines)
    writable = [item.target for item in (*policy.shown, *policy.carved) if item.writable]
    for place in (*masks, workspace, "/Users/ada/.ssh/id", "/etc/hosts", "/Users/eve/x", *writable):
        path = "/".join((place, *tail))
        if allowed(lines, "file-write-data", path):
            assert any(is_within(path, one) for one in writable), (path, lines)
    if profile in ("agent", "strict", "person"):
        git, *guarded = protected_paths(workspace)
        for path in guarded:
            assert not allowed(lines, "file-write-create", f"{path}/x"), (path, lines)
            assert not allowed(lines, "file-write-unlink", path), (path, lines)
        assert not allowed(lines, "file-write-unlink", git), lines
