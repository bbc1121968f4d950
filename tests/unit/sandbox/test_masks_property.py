"""Whatever is asked for: nothing below a mask can be reached in the mounts that are rendered, unless it was asked for
by name below that mask."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from lodger_sandbox.contract import BoxRequest, BoxUser, Mount
from lodger_sandbox.core.bwrap_arguments import ByPath, Style, render_bwrap
from lodger_sandbox.core.make_policy import Program, make_policy, paths_to_look_at
from lodger_sandbox.core.paths import is_within, moved
from lodger_sandbox.core.policy import HostFacts, Interpreter, PathKind, PolicyRefused

NAMES = st.sampled_from(("a", "b", "state", ".pyenv", ".cargo", "bin", "go"))
TOPS = st.sampled_from(
    ("/home", "/home/ada", "/srv", "/tmp", "/opt", "/home/ada/.pyenv", "/root", "/run/lodger", "/run")
)
PATHS = st.builds(lambda top, rest: "/".join((top, *rest)), TOPS, st.lists(NAMES, max_size=3))


@dataclass(frozen=True)
class Layer:
    target: str
    source: str | None
    """None is emptiness."""


def layers(options: tuple[str, ...]) -> list[Layer]:
    """The mount table these options make, read by rules of our own."""
    table: list[Layer] = []
    words = iter(options)
    for word in words:
        match word:
            case "--bind" | "--ro-bind":
                source, target = next(words), next(words)
                table.append(Layer(target, None if source == "/dev/null" else source))
            case "--tmpfs" | "--dev" | "--proc":
                table.append(Layer(next(words), None))
            case "--setenv":
                next(words)
                next(words)
            case _:
                pass
    return table


def host_path(path: str, table: list[Layer]) -> str | None:
    """What of the host is seen at `path` inside: the last mount that covers it decides."""
    for layer in reversed(table):
        if is_within(path, layer.target):
            return None if layer.source is None else moved(path, layer.target, layer.source)
    return None


def seen_at(host: str, table: list[Layer]) -> list[str]:
    """Every place inside where a path of the host can be seen."""
    sources = [(layer.source, layer.target) for layer in table if layer.source and is_within(host, layer.source)]
    places = [moved(host, source, target) for source, target in sources]
    return [place for place in places if host_path(place, table) == host]


@settings(max_examples=400, deadline=None)
@given(
    workspace=st.one_of(st.just("/srv/work"), PATHS),
    home=st.sampled_from(("/home/ada", "/root", "/srv/a")),
    masks=st.lists(PATHS, min_size=1, max_size=3),
    mounts=st.lists(st.builds(Mount, PATHS, PATHS, st.booleans()), max_size=3),
    profile=st.sampled_from(("agent", "strict", "memory_worker", "person", "guard", "read_only")),
    files=st.sets(PATHS, max_size=2),
    tails=st.lists(st.lists(NAMES, max_size=2), min_size=1, max_size=3),
    prefix=st.sampled_from(("/usr", "/root/.pyenv", "/home/ada/.pyenv", "/srv/state")),
)
def test_nothing_below_a_mask_is_reachable(
    workspace: str,
    home: str,
    masks: list[str],
    mounts: list[Mount],
    profile: str,
    files: set[str],
    tails: list[list[str]],
    prefix: str,
) -> None:
    request = BoxRequest(
        workspace=workspace,
        profile=profile,  # type: ignore[arg-type]
        user=BoxUser(1, 1, "u"),
        home=home,
        mounts=tuple(mounts),
        masks=tuple(masks),
    )
    program = Program("/usr/lib/lodger/runner")
    looked = paths_to_look_at(request, program)
    kinds = {path: PathKind.FILE if path in files else PathKind.FOLDER for path in looked}
    known = HostFacts(kinds, Interpreter(prefix, f"{prefix}/bin/python3", open_to_all=True))
    try:
        policy = make_policy(request, program, known)
    except PolicyRefused:
        return
    table = layers(render_bwrap(policy, Style(detached=True), ByPath, 3, 4))
    named = [mount.source for mount in mounts] + ([workspace] if profile == "memory_worker" else [])
    for mask in masks:
        for secret in [mask, *("/".join((mask, *tail)) for tail in tails)]:
            asked_for = [source for source in named if is_within(secret, source) and is_within(source, mask)]
            if not asked_for and not (is_within(secret, prefix) and is_within(prefix, mask)):
                assert seen_at(secret, table) == [], (secret, table)
