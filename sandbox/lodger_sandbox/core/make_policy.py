"""From a request and facts about the host to a policy, or a refusal."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lodger_sandbox.contract import BoxRequest
from lodger_sandbox.core.allowlist import HOME_ALLOWLIST, PRIVATE_RUN, PRIVATE_SHARED, VEILED, HomeEntry
from lodger_sandbox.core.git_guard import git_paths, guard_git
from lodger_sandbox.core.paths import depth, is_clean, is_within, moved
from lodger_sandbox.core.policy import (
    INTERPRETER_FOLDER,
    PROGRAM_FOLDER,
    RUN_FOLDER,
    Hidden,
    HostFacts,
    PathKind,
    Policy,
    PolicyRefused,
    PrivateFolder,
    Profile,
    Shown,
    ToCreate,
)

RUN_BYTES: Final = 16 * 1024 * 1024
"""/run is sealed before anything inside runs; it holds mount points only."""


@dataclass(frozen=True, slots=True)
class Program:
    """What the box is started for."""

    folder: str | None
    """Holds `main.py`, run by the interpreter; None when the command is given as it stands."""
    command: tuple[str, ...] = ()
    extra_folders: tuple[tuple[str, str], ...] = ()


def paths_to_look_at(request: BoxRequest, program: Program) -> tuple[str, ...]:
    """The paths whose kinds `make_policy` needs in its facts."""
    return (
        request.workspace,
        request.home,
        *git_paths(request.workspace),
        *(path for entry in HOME_ALLOWLIST for path in _way_to(entry, request.home)),
        *(path for mount in request.mounts for path in (mount.source, mount.target)),
        *request.masks,
        *VEILED,
        *PRIVATE_SHARED,
        *((program.folder,) if program.folder else ()),
        *(folder for folder, _ in program.extra_folders),
    )


def make_policy(request: BoxRequest, program: Program, facts: HostFacts) -> Policy:
    """Raises: PolicyRefused."""
    profile = Profile(request.profile)
    _refuse_bad_paths(request, program)
    _refuse_bad_workspace(request, profile, facts)
    _refuse_bad_mounts(request, facts)
    private = _private_folders(request, profile, facts)
    veils = _veils(request, private, facts)
    guarded, missing = _guard(request, profile, facts)
    asked = (*_workspace_entries(request, profile), *guarded, *_mount_entries(request))
    toolchains = _toolchains(request, profile, facts)
    interpreter = facts.interpreter
    in_place = interpreter.open_to_all and not _is_covered(interpreter.prefix, veils, private, request.masks)
    shown = (*toolchains, *asked)
    carved = tuple(item for item in asked if any(is_within(item.target, mask) for mask in request.masks))
    uncarved = tuple(item for item in shown if item not in carved)
    run = _run_entries(request, program, facts, in_place)
    hidden = _hidden(request.masks, veils, private, uncarved, (*carved, *run), facts)
    executable = interpreter.executable
    if not in_place:
        executable = moved(executable, interpreter.prefix, INTERPRETER_FOLDER)
    return Policy(
        profile=profile,
        workspace=request.workspace,
        home=request.home,
        veils=veils,
        private=private,
        shown=_parents_first(uncarved),
        hidden=hidden,
        carved=_parents_first(carved),
        run=run,
        to_create=missing,
        command=_command(program, executable),
        written=request.written,
        environment=dict(request.environment),
        limits=request.limits,
    )


def _command(program: Program, executable: str) -> tuple[str, ...]:
    if program.folder is None:
        return (executable, *program.command)
    return (executable, "-I", "-S", "-B", f"{PROGRAM_FOLDER}/main.py", *program.command)


def _refuse_bad_paths(request: BoxRequest, program: Program) -> None:
    targets = [path for mount in request.mounts for path in (mount.source, mount.target)]
    extras = [folder for folder, _ in program.extra_folders]
    places = [file.target for file in request.written]
    for path in (request.workspace, request.home, *targets, *request.masks, *extras, *places):
        if not is_clean(path):
            raise PolicyRefused(f"{path!r} is not a plain absolute path.")
    for _, name in program.extra_folders:
        if not name or "/" in name or name in (".", "..", "x", "python"):
            raise PolicyRefused(f"{name!r} cannot name a folder below {RUN_FOLDER}.")
    for place in places:
        folder, _, name = place.rpartition("/")
        if folder != RUN_FOLDER or place in (PROGRAM_FOLDER, INTERPRETER_FOLDER):
            raise PolicyRefused(f"{place} cannot name a text below {RUN_FOLDER}.")
    for name, value in request.environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise PolicyRefused(f"{name!r} cannot be an environment variable.")


def _refuse_bad_workspace(request: BoxRequest, profile: Profile, facts: HostFacts) -> None:
    workspace, home = request.workspace, request.home
    if home == "/":
        raise PolicyRefused("The home is /, which cannot be made private. Give the daemon's user a home of its own.")
    if is_within(home, workspace):
        raise PolicyRefused(f"{workspace} is the home or holds it; work in a folder below the home instead.")
    for place in request.installation if profile is not Profile.READ_ONLY else ():
        if is_within(place, workspace) or is_within(workspace, place):
            raise PolicyRefused(
                f"Lodger itself lies in {place}, and what is written to {workspace} could change what it runs outside"
                " every box; work in another folder."
            )
    for mask in request.masks:
        if is_within(mask, workspace):
            raise PolicyRefused(f"{workspace} holds {mask}, which no box may see; choose another folder.")
        if is_within(workspace, mask) and profile is not Profile.MEMORY_WORKER:
            raise PolicyRefused(f"{workspace} lies in {mask}, which no box may see; choose another folder.")
    for system in ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run/lodger", "/sbin", "/sys", "/usr"):
        if is_within(workspace, system) or is_within(system, workspace):
            raise PolicyRefused(f"{workspace} belongs to the system; work in a folder of your own.")
    if workspace in (*PRIVATE_SHARED, *VEILED, PRIVATE_RUN, "/var"):
        raise PolicyRefused(f"{workspace} is shared by everyone; work in a folder below it.")
    kind = facts.kind(workspace)
    if kind is PathKind.LINK:
        raise PolicyRefused(f"{workspace} is a link; name the folder itself.")
    if kind is not PathKind.FOLDER:
        raise PolicyRefused(f"{workspace} is no folder ({kind.value}).")
    if profile is Profile.GUARD and facts.kind(f"{workspace}/.git") is not PathKind.FOLDER:
        raise PolicyRefused(f"{workspace}/.git is no folder: there is nothing to guard.")


def _refuse_bad_mounts(request: BoxRequest, facts: HostFacts) -> None:
    places = (request.home, request.workspace, PRIVATE_RUN, *PRIVATE_SHARED, *request.masks)
    for mount in request.mounts:
        if mount.target in (RUN_FOLDER, PRIVATE_RUN, PROGRAM_FOLDER, INTERPRETER_FOLDER):
            raise PolicyRefused(f"{mount.target} belongs to the sandbox; mount at another name below {RUN_FOLDER}.")
        if is_within(request.workspace, mount.target) or is_within(request.home, mount.target):
            raise PolicyRefused(f"{mount.target} would cover the workspace or the home.")
        for mask in request.masks:
            if is_within(mask, mount.source):
                raise PolicyRefused(f"{mount.source} holds {mask}, which no box may see.")
            if is_within(mask, mount.target):
                raise PolicyRefused(f"{mount.target} would cover {mask}, which is hidden; mount below it instead.")
        made_inside = any(is_within(mount.target, place) for place in places)
        if not made_inside and facts.kind(mount.target) is PathKind.MISSING:
            raise PolicyRefused(f"{mount.target} does not exist on this machine, so nothing can be mounted there.")
        if facts.kind(mount.source) in (PathKind.MISSING, PathKind.OTHER, PathKind.LINK):
            kind = facts.kind(mount.source).value
            raise PolicyRefused(f"{mount.source} cannot be shown: it is no folder or file ({kind}).")


def _veils(request: BoxRequest, private: Sequence[PrivateFolder], facts: HostFacts) -> tuple[str, ...]:
    """A veil is sealed, so it must be no place where something else is mounted: root's home is both."""
    others = {*(folder.path for folder in private), *(mount.target for mount in request.mounts)}
    return tuple(path for path in VEILED if facts.kind(path) is PathKind.FOLDER and path not in others)


def _private_folders(request: BoxRequest, profile: Profile, facts: HostFacts) -> tuple[PrivateFolder, ...]:
    limits = request.limits
    folders = [PrivateFolder(PRIVATE_RUN, 0o755, RUN_BYTES)]
    folders += [
        PrivateFolder(path, 0o1777, limits.tmp_bytes)
        for path in PRIVATE_SHARED
        if path == "/dev/shm" or facts.kind(path) is PathKind.FOLDER  # noqa: S108 - covered, not used
    ]
    # The daemon's user may have no home on disk; then there is nothing to cover and no mount point to cover it with.
    reachable = facts.kind(request.home) is PathKind.FOLDER
    if reachable or any(is_within(request.home, folder.path) for folder in folders):
        folders.append(PrivateFolder(request.home, 0o700, limits.home_bytes))
    if profile is Profile.GUARD:
        folders.append(PrivateFolder(request.workspace, 0o700, RUN_BYTES))
    return tuple(sorted(folders, key=lambda folder: depth(folder.path)))


def _guard(request: BoxRequest, profile: Profile, facts: HostFacts) -> tuple[tuple[Shown, ...], tuple[ToCreate, ...]]:
    # A checkout is never opened by git outside a box, and a read-only workspace needs no guard.
    if profile in (Profile.MEMORY_WORKER, Profile.READ_ONLY, Profile.GUARD):
        return (), ()
    return guard_git(request.workspace, profile, facts)


def _workspace_entries(request: BoxRequest, profile: Profile) -> tuple[Shown, ...]:
    path = request.workspace
    if profile is Profile.GUARD:
        return (Shown(f"{path}/.git", f"{path}/.git", True, "the repository to be guarded"),)
    return (Shown(path, path, profile is not Profile.READ_ONLY, "the workspace"),)


def _mount_entries(request: BoxRequest) -> tuple[Shown, ...]:
    read_only = request.profile == "read_only"
    return tuple(
        Shown(mount.source, mount.target, mount.writable and not read_only, "asked for by the daemon")
        for mount in request.mounts
    )


def _toolchains(request: BoxRequest, profile: Profile, facts: HostFacts) -> tuple[Shown, ...]:
    if profile in (Profile.GUARD, Profile.MEMORY_WORKER) or facts.kind(request.home) is not PathKind.FOLDER:
        return ()
    found = []
    for entry in HOME_ALLOWLIST:
        *folders, path = _way_to(entry, request.home)
        # A link could lead anywhere, one on the way too; what lies in the workspace is shown with it; what a mask holds
        # stays hidden.
        if (
            not any(facts.kind(folder) is PathKind.LINK for folder in folders)
            and facts.kind(path) in (PathKind.FOLDER, PathKind.FILE)
            and not is_within(path, request.workspace)
            and not any(is_within(path, mask) for mask in request.masks)
        ):
            found.append(Shown(path, path, False, entry.why))
    return tuple(found)


def _way_to(entry: HomeEntry, home: str) -> tuple[str, ...]:
    """Every folder below the home that has to be walked through, then the entry itself."""
    parts = entry.name.split("/")
    return tuple(f"{home}/{'/'.join(parts[:count])}" for count in range(1, len(parts) + 1))


def _run_entries(
    request: BoxRequest, program: Program, facts: HostFacts, interpreter_in_place: bool
) -> tuple[Shown, ...]:
    entries = []
    if program.folder is not None:
        entries.append(Shown(program.folder, PROGRAM_FOLDER, False, "the program of this box"))
    entries += [
        Shown(folder, f"{RUN_FOLDER}/{name}", False, "needed by the program") for folder, name in program.extra_folders
    ]
    if not interpreter_in_place:
        entries.append(Shown(facts.interpreter.prefix, INTERPRETER_FOLDER, False, "the Python that runs the program"))
    for entry in entries:
        if any(is_within(mask, entry.source) for mask in request.masks):
            raise PolicyRefused(f"{entry.source} must be visible in the box but holds something hidden.")
    return tuple(entries)


def _is_covered(path: str, veils: Iterable[str], private: Iterable[PrivateFolder], masks: Iterable[str]) -> bool:
    covers = (*veils, *(folder.path for folder in private), *masks)
    return any(is_within(path, cover) for cover in covers)


def _hidden(
    masks: Sequence[str],
    veils: Sequence[str],
    private: Sequence[PrivateFolder],
    shown: Sequence[Shown],
    later: Sequence[Shown],
    facts: HostFacts,
) -> tuple[Hidden, ...]:
    """Every place where a masked path would be seen, outermost first, none below another."""
    places: dict[str, Hidden] = {}
    for mask in masks:
        if facts.kind(mask) is PathKind.LINK:
            raise PolicyRefused(f"{mask} is a link; the place it points at must be hidden instead.")
        is_folder = facts.kind(mask) is not PathKind.FILE
        for place in _where_seen(mask, veils, private, shown):
            passable = any(is_within(item.target, place) for item in later)
            places[place] = Hidden(place, is_folder, passable)
    ordered = sorted(places.values(), key=lambda item: (depth(item.path), item.path))
    kept: list[Hidden] = []
    for item in ordered:
        if not any(is_within(item.path, outer.path) for outer in kept):
            kept.append(item)
    return tuple(kept)


def _where_seen(mask: str, veils: Sequence[str], private: Sequence[PrivateFolder], shown: Sequence[Shown]) -> list[str]:
    """The targets at which `mask` would be visible before masks are applied."""
    seen = []
    blanks = [*veils, *(folder.path for folder in private)]
    if not any(is_within(mask, blank) for blank in blanks):
        seen.append(mask)
    seen += [moved(mask, item.source, item.target) for item in shown if is_within(mask, item.source)]
    return list(dict.fromkeys(seen))


def _parents_first(items: Iterable[Shown]) -> tuple[Shown, ...]:
    """A bind covers what was bound below it before, so outer targets go first; otherwise the given order."""
    return tuple(sorted(items, key=lambda item: depth(item.target)))
