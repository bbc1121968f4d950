from dataclasses import replace

import pytest

from lodger_sandbox.contract import BoxRequest, BoxUser, Mount, WrittenFile
from lodger_sandbox.core.explain import explain
from lodger_sandbox.core.make_policy import Program, make_policy, paths_to_look_at
from lodger_sandbox.core.policy import (
    Hidden,
    HostFacts,
    Interpreter,
    PathKind,
    Policy,
    PolicyRefused,
    PrivateFolder,
    Profile,
    Shown,
    ToCreate,
)

USER = BoxUser(1000, 1000, "ada")
SYSTEM_PYTHON = Interpreter("/usr", "/usr/bin/python3.11", open_to_all=True)
HOME_PYTHON = Interpreter("/home/ada/.pyenv/v", "/home/ada/.pyenv/v/bin/python3.11", open_to_all=True)
PROGRAM = Program("/opt/lodger/runner", ("3", "4", "5"))
WORKSPACE = "/home/ada/project"
STATE = "/home/ada/.local/state/lodger"
REQUEST = BoxRequest(workspace=WORKSPACE, profile="agent", user=USER, home="/home/ada", masks=(STATE,))
FOLDERS = ("/home", "/home/ada", WORKSPACE, STATE, "/tmp", "/var/tmp", "/opt/lodger/runner", "/srv/state", "/srv/other")


def with_kinds(kinds: dict[str, PathKind], interpreter: Interpreter = SYSTEM_PYTHON) -> HostFacts:
    return HostFacts({**dict.fromkeys(FOLDERS, PathKind.FOLDER), **kinds}, interpreter)


def policy(request: BoxRequest = REQUEST, known: HostFacts | None = None) -> Policy:
    return make_policy(request, PROGRAM, known or with_kinds({}))


def refusal(request: BoxRequest, known: HostFacts | None = None) -> str:
    with pytest.raises(PolicyRefused) as caught:
        policy(request, known)
    return str(caught.value)


def test_the_default_box() -> None:
    limits = REQUEST.limits
    assert policy() == Policy(
        profile=Profile.AGENT,
        workspace=WORKSPACE,
        home="/home/ada",
        veils=("/home",),
        private=(
            PrivateFolder("/run", 0o755, 16 * 1024**2),
            PrivateFolder("/tmp", 0o1777, limits.tmp_bytes),
            PrivateFolder("/var/tmp", 0o1777, limits.tmp_bytes),
            PrivateFolder("/dev/shm", 0o1777, limits.tmp_bytes),
            PrivateFolder("/home/ada", 0o700, limits.home_bytes),
        ),
        shown=(Shown(WORKSPACE, WORKSPACE, True, "the workspace"),),
        hidden=(),
        carved=(),
        run=(Shown("/opt/lodger/runner", "/run/lodger/x", False, "the program of this box"),),
        to_create=(),
        command=("/usr/bin/python3.11", "-I", "-S", "-B", "/run/lodger/x/main.py", "3", "4", "5"),
        environment={},
        limits=limits,
    )


def test_a_mask_is_rendered_where_the_host_shows_through() -> None:
    assert policy(replace(REQUEST, masks=("/srv/state",))).hidden == (Hidden("/srv/state", is_folder=True),)


def test_a_mask_inside_a_toolchain_is_hidden_there() -> None:
    known = with_kinds({"/home/ada/.pyenv": PathKind.FOLDER})
    request = replace(REQUEST, masks=("/home/ada/.pyenv/secret", "/home/ada/.aws"))
    assert policy(request, known).hidden == (Hidden("/home/ada/.pyenv/secret", is_folder=True),)


def test_a_masked_file_is_covered_as_a_file() -> None:
    known = with_kinds({"/etc/secret": PathKind.FILE})
    assert policy(replace(REQUEST, masks=("/etc/secret",)), known).hidden == (Hidden("/etc/secret", is_folder=False),)


def test_a_mask_below_a_mask_is_said_once() -> None:
    assert policy(replace(REQUEST, masks=("/srv/state/a", "/srv/state"))).hidden == (Hidden("/srv/state", True),)


def test_what_the_daemon_asks_for_by_name_is_carved_out_of_a_mask() -> None:
    checkout = "/srv/state/agents/one/checkout"
    request = replace(REQUEST, masks=("/srv/state",), mounts=(Mount(checkout, checkout, writable=True),))
    made = policy(request, with_kinds({checkout: PathKind.FOLDER}))
    assert made.carved == (Shown(checkout, checkout, True, "asked for by the daemon"),)
    assert made.hidden == (Hidden("/srv/state", True, passable=True),)


def test_a_checkout_is_shown_in_the_home() -> None:
    source, target = "/srv/state/checkout", "/home/ada/memory"
    request = replace(REQUEST, masks=("/srv/state",), mounts=(Mount(source, target, writable=True),))
    made = policy(request, with_kinds({source: PathKind.FOLDER}))
    assert Shown(source, target, True, "asked for by the daemon") in made.shown
    assert made.hidden == (Hidden("/srv/state", True),)


@pytest.mark.parametrize(
    ("workspace", "words"),
    [
        ("/home/ada", "is the home or holds it"),
        ("/home", "is the home or holds it"),
        ("/", "is the home or holds it"),
        ("/srv", "holds /srv/state"),
        ("/srv/state", "holds /srv/state"),
        ("/srv/state/deep", "lies in /srv/state"),
        ("/etc/x", "belongs to the system"),
        ("/usr", "belongs to the system"),
        ("/run/lodger/x", "belongs to the system"),
        ("/tmp", "is shared by everyone"),
        ("/nowhere", "is no folder"),
        ("relative", "is not a plain absolute path"),
        ("/srv/../etc", "is not a plain absolute path"),
        ("/srv/a/", "is not a plain absolute path"),
        ("/srv/a\0b", "is not a plain absolute path"),
    ],
)
def test_workspaces_that_are_refused(workspace: str, words: str) -> None:
    assert words in refusal(replace(REQUEST, workspace=workspace, masks=("/srv/state",)))


def test_a_linked_workspace_is_refused() -> None:
    assert "is a link" in refusal(REQUEST, with_kinds({WORKSPACE: PathKind.LINK}))


def test_a_name_that_only_begins_like_a_mask_is_no_part_of_it() -> None:
    request = replace(REQUEST, workspace="/srv/state-of-art", masks=("/srv/state",))
    assert policy(request, with_kinds({"/srv/state-of-art": PathKind.FOLDER})).workspace == "/srv/state-of-art"


def test_the_memory_worker_may_work_in_the_masked_checkout() -> None:
    request = replace(REQUEST, profile="memory_worker", workspace="/srv/state/deep", masks=("/srv/state",))
    made = policy(request, with_kinds({"/srv/state/deep": PathKind.FOLDER, "/home/ada/.pyenv": PathKind.FOLDER}))
    assert (made.shown, made.carved) == ((), (Shown("/srv/state/deep", "/srv/state/deep", True, "the workspace"),))


@pytest.mark.parametrize(
    ("mount", "words"),
    [
        (Mount("/srv", "/tmp/a"), "holds /srv/state"),
        (Mount("/srv/other", "/srv"), "would cover /srv/state"),
        (Mount("/srv/other", "/home"), "would cover the workspace or the home"),
        (Mount("/srv/other", "/run/lodger/x"), "belongs to the sandbox"),
        (Mount("/srv/other", "/opt/new"), "does not exist on this machine"),
        (Mount("/srv/missing", "/tmp/a"), "cannot be shown"),
    ],
)
def test_mounts_that_are_refused(mount: Mount, words: str) -> None:
    assert words in refusal(replace(REQUEST, mounts=(mount,), masks=("/srv/state",)))


def test_a_linked_mask_is_refused() -> None:
    known = with_kinds({"/srv/state": PathKind.LINK})
    assert "is a link" in refusal(replace(REQUEST, masks=("/srv/state",)), known)


@pytest.mark.parametrize("name", ["", "x", "..", "a/b"])
def test_extra_folders_have_plain_names(name: str) -> None:
    with pytest.raises(PolicyRefused):
        make_policy(REQUEST, replace(PROGRAM, extra_folders=(("/srv/other", name),)), with_kinds({}))


@pytest.mark.parametrize("name", ["", "A=B", "A\0"])
def test_environment_names_are_checked(name: str) -> None:
    assert "cannot be an environment variable" in refusal(replace(REQUEST, environment={name: "x"}))


def test_a_home_that_is_the_root_is_refused() -> None:
    assert "cannot be made private" in refusal(replace(REQUEST, home="/"))


def test_a_home_that_does_not_exist_needs_no_cover() -> None:
    made = policy(replace(REQUEST, home="/nonexistent", workspace="/srv/other", masks=()))
    assert "/nonexistent" not in [folder.path for folder in made.private]


def test_an_interpreter_in_the_home_is_shown_elsewhere() -> None:
    made = policy(known=with_kinds({}, HOME_PYTHON))
    assert made.command[0] == "/run/lodger/python/bin/python3.11"
    assert made.run[-1] == Shown("/home/ada/.pyenv/v", "/run/lodger/python", False, "the Python that runs the program")


def test_an_interpreter_others_cannot_enter_is_shown_elsewhere() -> None:
    private = Interpreter("/opt/python", "/opt/python/bin/python3.11", open_to_all=False)
    assert policy(known=with_kinds({}, private)).command[0] == "/run/lodger/python/bin/python3.11"


def test_toolchains_are_shown_but_not_links_and_not_what_the_workspace_holds() -> None:
    known = with_kinds(
        {
            "/home/ada/.cargo/bin": PathKind.FOLDER,
            "/home/ada/.gitconfig": PathKind.LINK,
            "/home/ada/.pyenv": PathKind.FOLDER,
            "/home/ada/.pyenv/work": PathKind.FOLDER,
        }
    )
    made = policy(known=known)
    assert [item.target for item in made.shown if item.source != WORKSPACE] == [
        "/home/ada/.pyenv",
        "/home/ada/.cargo/bin",
    ]
    assert all(not item.writable for item in made.shown if item.source != WORKSPACE)


@pytest.mark.parametrize("profile", ["guard", "memory_worker"])
def test_boxes_that_need_no_toolchains_get_none(profile: str) -> None:
    known = with_kinds({"/home/ada/.pyenv": PathKind.FOLDER, f"{WORKSPACE}/.git": PathKind.FOLDER})
    made = policy(replace(REQUEST, profile=profile), known)  # type: ignore[arg-type]
    assert "/home/ada/.pyenv" not in [item.target for item in made.shown]


def test_the_guard_sees_the_repository_alone() -> None:
    made = policy(replace(REQUEST, profile="guard"), with_kinds({f"{WORKSPACE}/.git": PathKind.FOLDER}))
    assert [item.target for item in made.shown] == [f"{WORKSPACE}/.git"]
    assert WORKSPACE in [folder.path for folder in made.private]


def test_the_guard_needs_a_repository() -> None:
    assert "nothing to guard" in refusal(replace(REQUEST, profile="guard"))


def test_read_only_means_mounts_too() -> None:
    request = replace(REQUEST, profile="read_only", mounts=(Mount("/srv/other", "/tmp/a", writable=True),))
    made = policy(request)
    assert not any(item.writable for item in made.shown)
    assert not made.workspace_is_writable


GIT = f"{WORKSPACE}/.git"


def test_absent_git_entries_are_made_and_protected() -> None:
    made = policy(known=with_kinds({GIT: PathKind.FOLDER}))
    assert made.to_create == (
        ToCreate(f"{GIT}/hooks", True),
        ToCreate(f"{GIT}/config.worktree", False),
        ToCreate(f"{GIT}/commondir", False, b".\n"),
    )
    assert [(item.target, item.writable) for item in made.shown] == [
        (WORKSPACE, True),
        (GIT, True),
        (f"{GIT}/hooks", False),
        (f"{GIT}/config.worktree", False),
        (f"{GIT}/commondir", False),
    ]


def test_configuration_is_read_only_in_strict() -> None:
    made = policy(replace(REQUEST, profile="strict"), with_kinds({GIT: PathKind.FOLDER}))
    assert made.shown[-1].target == f"{GIT}/config"
    assert not made.shown[-1].writable


def test_a_work_tree_of_another_repository_keeps_its_name_for_it() -> None:
    made = policy(known=with_kinds({GIT: PathKind.FILE}))
    assert [(item.target, item.writable) for item in made.shown] == [(WORKSPACE, True), (GIT, False)]


@pytest.mark.parametrize(
    "kinds",
    [
        {GIT: PathKind.LINK},
        {GIT: PathKind.FOLDER, f"{GIT}/hooks": PathKind.LINK},
        {GIT: PathKind.FOLDER, f"{GIT}/hooks": PathKind.FILE},
        {GIT: PathKind.FOLDER, f"{GIT}/commondir": PathKind.FOLDER},
    ],
)
def test_git_entries_that_cannot_be_protected_are_refused(kinds: dict[str, PathKind]) -> None:
    assert "protect" in refusal(REQUEST, with_kinds(kinds))


def test_facts_are_asked_for_all_that_matters() -> None:
    request = replace(REQUEST, mounts=(Mount("/srv/other", "/tmp/a"),))
    asked = paths_to_look_at(request, replace(PROGRAM, extra_folders=(("/opt/v", "v"),)))
    assert {WORKSPACE, GIT, "/srv/other", "/tmp/a", STATE, "/home", "/opt/v", "/home/ada/.pyenv"} <= set(asked)


def test_words_for_people() -> None:
    request = replace(REQUEST, masks=("/srv/state",), environment={"PATH": "/bin", "SECRET": "do not print"})
    text = explain(policy(request, with_kinds({GIT: PathKind.FOLDER})))
    assert "/srv/state: hidden" in text
    assert f"{WORKSPACE}: writable; the workspace" in text
    assert f"{GIT}/commondir: made on this machine, so that it can be protected" in text
    assert "/run/lodger/x (from /opt/lodger/runner): read-only" in text
    assert "At most 512 processes, 4096 MiB" in text
    assert "Environment: PATH, SECRET." in text
    assert "do not print" not in text


def test_a_home_that_would_be_veiled_stays_writable() -> None:
    request = replace(REQUEST, home="/root", workspace="/srv/other", masks=())
    made = policy(request, with_kinds({"/root": PathKind.FOLDER}))
    assert made.veils == ("/home",)
    assert PrivateFolder("/root", 0o700, REQUEST.limits.home_bytes) in made.private


def test_a_mount_in_place_of_a_veiled_folder_is_not_sealed() -> None:
    request = replace(REQUEST, mounts=(Mount("/srv/other", "/var/spool", writable=True),))
    assert "/var/spool" not in policy(request, with_kinds({"/var/spool": PathKind.FOLDER})).veils


@pytest.mark.parametrize("workspace", ["/srv/other", "/srv/other/daemon", "/srv"])
def test_nobody_works_where_the_program_itself_lies(workspace: str) -> None:
    known = with_kinds({workspace: PathKind.FOLDER})
    asked = replace(REQUEST, workspace=workspace, masks=())
    assert policy(asked, known).workspace_is_writable
    here = replace(asked, installation=("/srv/other",))
    assert "Lodger itself lies in /srv/other" in refusal(here, known)
    assert not policy(replace(here, profile="read_only"), known).workspace_is_writable


@pytest.mark.parametrize("target", ["/etc/passwd", "/run/lodger/x", "/run/lodger/python", "/run/lodger/x/main.py"])
def test_a_text_is_written_beside_the_program_alone(target: str) -> None:
    assert target in refusal(replace(REQUEST, written=(WrittenFile(target, "text"),)))
    made = policy(replace(REQUEST, written=(WrittenFile("/run/lodger/text", "text"),)))
    assert made.written == (WrittenFile("/run/lodger/text", "text"),)
    assert "/run/lodger/text: read-only; written for this box" in explain(made)
