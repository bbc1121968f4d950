"""Random requests with masks, and what is found in real boxes made of them."""

import random
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from lodger_sandbox.contract import BoxRequest, Mount
from lodger_sandbox.core.paths import is_within
from lodger_sandbox.core.policy import Policy, PolicyRefused
from lodger_sandbox.foreground import policy_for_command, run_with_policy
from lodger_sandbox.prepare import Rewrite
from support.sandbox_users import own, user_of_boxes, visible_folder

SEEDS = range(24)
NAMES = ("a", ".pyenv", "state")
"""The second is a toolchain that is shown in a home, so a mask can lie in what is shown."""
PROFILES = ("agent", "strict", "memory_worker", "person", "guard", "read_only")
DONE = "the look came to its end"
FIND = """
for place in {base} /run /mnt /home /root /tmp; do
  find $place -path '*/lib/python3*' -prune -o -name 'secret-*' -print 2>/dev/null
done
echo {done}
"""


@dataclass(frozen=True)
class Case:
    request: BoxRequest
    secrets: dict[str, str]
    """The name of a file found nowhere else, and where it lies."""


def tree(base: Path, rng: random.Random) -> tuple[list[Path], dict[str, str]]:
    """Folders three deep, a secret of its own name in each, and links between some."""
    folders = [base]
    for depth in range(3):
        folders += [
            folder / name for folder in folders if len(folder.relative_to(base).parts) == depth for name in NAMES
        ]
    secrets = {}
    for number, folder in enumerate(folders[1:]):
        folder.mkdir()
        (folder / f"secret-{number}").touch()
        secrets[f"secret-{number}"] = str(folder / f"secret-{number}")
    for folder in rng.sample(folders[1:], 6):
        (folder / "link").symlink_to(rng.choice(folders[1:]))
    return folders[1:], secrets


def case(base: Path, seed: int) -> Case:
    rng = random.Random(seed)
    folders, secrets = tree(base, rng)
    profile = rng.choice(PROFILES)
    workspace = rng.choice(folders)
    if profile == "guard" or rng.random() < 0.5:
        subprocess.run(("git", "init", "-q", str(workspace)), check=True)
    own(base, user_of_boxes())
    home = rng.choice([base, *folders])
    in_toolchain = [path for path in folders if path.is_relative_to(home / ".pyenv") and path != home / ".pyenv"]
    masked = [*rng.sample(folders, rng.randint(1, 2)), *rng.sample(in_toolchain, min(1, len(in_toolchain)))]
    masks = tuple(str(path) for path in masked)
    mounts = tuple(
        Mount(str(rng.choice(folders)), str(rng.choice(folders)), rng.random() < 0.5) for _ in range(rng.randint(0, 2))
    )
    request = BoxRequest(
        workspace=str(workspace),
        profile=profile,  # type: ignore[arg-type]
        user=user_of_boxes(),
        home=str(home),
        mounts=mounts,
        masks=masks,
        environment={"PATH": "/usr/bin:/bin"},
    )
    return Case(request, secrets)


@dataclass(frozen=True)
class Order:
    """How the mounts of a policy are laid."""

    of_policy: Callable[[Policy], Policy]
    of_options: Rewrite


AS_MADE = Order(lambda policy: policy, lambda options: options)


def _masks_before_what_is_shown(policy: Policy) -> Policy:
    # What is carved comes after the masks.
    return replace(policy, shown=(), carved=(*policy.shown, *policy.carved))


def _without_seals(options: tuple[str, ...]) -> tuple[str, ...]:
    # A mask that was covered again is no place that could be sealed.
    return options[: options.index("--remount-ro")] + options[options.index("--seccomp") :]


MASKS_FIRST = Order(_masks_before_what_is_shown, _without_seals)


def found_inside(case: Case, base: Path, order: Order = AS_MADE) -> set[str] | None:
    """The names of the secrets that a command saw; None when no box may be made of the request.

    Raises: AssertionError when the command did not come to its end: what was not looked for is not hidden.
    """
    with tempfile.TemporaryFile() as output:
        command = ("sh", "-c", FIND.format(base=base, done=DONE))
        try:
            policy = order.of_policy(policy_for_command(case.request, command))
        except PolicyRefused:
            return None
        code = run_with_policy(
            policy,
            case.request,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            limit_s=20,
            rewrite=order.of_options,
        )
        output.seek(0)
        lines = output.read().decode().splitlines()
    if code != 0 or DONE not in lines:
        raise AssertionError(f"the box ended with {code}: {lines[-5:]}")
    return {line.rpartition("/")[2] for line in lines if "/secret-" in line}


def hidden_secrets(case: Case) -> set[str]:
    request = case.request
    named = [mount.source for mount in request.mounts]
    named += [request.workspace] if request.profile == "memory_worker" else []
    hidden = set()
    for name, path in case.secrets.items():
        covering = [mask for mask in request.masks if is_within(path, mask)]
        asked_for = any(is_within(path, source) and is_within(source, mask) for source in named for mask in covering)
        if covering and not asked_for:
            hidden.add(name)
    return hidden


@dataclass
class Sample:
    """What the seeds came to."""

    looked_into: int = 0
    hidden: int = 0
    shown: int = 0
    leaks: list[tuple[int, list[str]]] = field(default_factory=list)

    @property
    def proves_something(self) -> bool:
        return self.looked_into >= 6 and self.hidden >= 20 and self.shown >= 20


def sample(parent: Path, order: Order = AS_MADE) -> Sample:
    """Every seed once, in folders below `parent`; in a wrong order only until it shows."""
    found = Sample()
    for seed in SEEDS:
        with visible_folder(parent) as base:
            one = case(base, seed)
            seen = found_inside(one, base, order)
            if seen is None:
                continue
            found.looked_into += 1
            found.hidden += len(hidden_secrets(one))
            found.shown += len(seen)
            if leaked := seen & hidden_secrets(one):
                found.leaks.append((seed, sorted(leaked)))
                if order is not AS_MADE:
                    break
    return found
