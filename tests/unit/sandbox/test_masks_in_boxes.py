"""A seeded sample of random requests, in real boxes: nothing below a mask is found inside that was not asked for."""

import os
import random
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from lodger_sandbox.contract import BoxRequest, Mount
from lodger_sandbox.core.paths import is_within
from lodger_sandbox.core.policy import PolicyRefused
from lodger_sandbox.foreground import policy_for_command, run_with_policy
from support.sandbox_users import own, user_of_boxes, visible_folder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs folders outside every private folder")

SEEDS = range(24)
NAMES = ("a", ".pyenv", "state")
"""The second is a toolchain that is shown in a home, so a mask can lie in what is shown."""
PROFILES = ("agent", "strict", "memory_worker", "person", "guard", "read_only")
FIND = "for place in {base} /run /mnt /home /root /tmp; do find $place -name 'secret-*' 2>/dev/null; done; exit 0"


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


def found_inside(case: Case, base: Path) -> set[str] | None:
    """None when no box may be made of it."""
    with tempfile.TemporaryFile() as output:
        command = ("sh", "-c", FIND.format(base=base))
        try:
            policy = policy_for_command(case.request, command)
        except PolicyRefused:
            return None
        run_with_policy(policy, case.request, stdin=subprocess.DEVNULL, stdout=output, stderr=output, limit_s=20)
        output.seek(0)
        return {line.rpartition("/")[2] for line in output.read().decode().splitlines() if "/secret-" in line}


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


def test_nothing_below_a_mask_is_found_in_a_box() -> None:
    looked_into, hidden, shown = 0, 0, 0
    for seed in SEEDS:
        with visible_folder() as base:
            one = case(base, seed)
            found = found_inside(one, base)
            if found is None:
                continue
            looked_into += 1
            hidden += len(hidden_secrets(one))
            shown += len(found)
            assert not found & hidden_secrets(one), (seed, one.request)
    # Else the sample would prove nothing.
    assert looked_into >= 6 and hidden >= 20 and shown >= 20
