"""What a memory may measure at most (docs/memory.md): past each limit the agent and the person are told which, main
stays as it was, and the next turn goes on with it. Real git."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from lodger_daemon.memory import checkout, importing, packs, published
from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.core.pack import PackLimits
from lodger_hub.git_host import repositories
from lodger_hub.git_host.app import HostLimits
from lodger_tools.validator.limits import DEFAULT_LIMITS
from support.git_host_server import TOKEN, RunningHost, running_git_host
from support.memory_conflicts import heard, in_order
from support.memory_machines import AGENT, Machine, note, running_machine
from support.plain_boxes import agent_git

MIB = 1024**2


def large_file(folder: Path) -> None:
    (folder / "large.png").write_bytes(bytes(DEFAULT_LIMITS.file_bytes + 1))


def large_note(folder: Path) -> None:
    (folder / "large.md").write_text(note("x" * DEFAULT_LIMITS.markdown_bytes))


def large_core(folder: Path) -> None:
    for number in range(3):
        (folder / f"core{number}.md").write_text(note("x" * (DEFAULT_LIMITS.core_bytes // 3)))


def many_files(folder: Path) -> None:
    (folder / "many").mkdir()
    for number in range(DEFAULT_LIMITS.files):
        (folder / "many" / f"f{number}.txt").touch()


def large_tree(folder: Path) -> None:
    # The same content over and over: little to store, and no less for whoever checks it out.
    (folder / "pictures").mkdir()
    for number in range(DEFAULT_LIMITS.tree_bytes // MIB + 1):
        (folder / "pictures" / f"p{number}.png").write_bytes(bytes(MIB))


def deep(folder: Path) -> None:
    place = folder.joinpath(*"abcdefghijklmnopq"[: DEFAULT_LIMITS.depth + 1])
    place.mkdir(parents=True)
    (place / "deep.txt").touch()


def long_path(folder: Path) -> None:
    place = folder.joinpath(*["p" * 150] * 4)
    place.mkdir(parents=True)
    (place / "far.txt").touch()


def long_name(folder: Path) -> None:
    (folder / ("n" * (DEFAULT_LIMITS.name_bytes + 1))).touch()


def large_at_once(folder: Path) -> None:
    (folder / "pictures").mkdir()
    for number in range(PackLimits().total_bytes // MIB + 1):
        (folder / "pictures" / f"p{number}.png").write_bytes(number.to_bytes(2, "big") + bytes(MIB - 2))


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("write", "words"),
    [
        (large_file, "at most 1048576 are allowed"),
        (large_note, "at most 262144 are allowed"),
        (large_core, "the core memory has"),
        (many_files, "at most 10000 are allowed"),
        (large_tree, "at most 268435456 are allowed"),
        (deep, "in more than 16 folders in each other"),
        (long_path, "the path is longer than 512 bytes"),
        (long_name, "the name is longer than 200 bytes"),
        (large_at_once, "more than 100,663,296 bytes at once: take the commit back"),
    ],
)
async def test_a_commit_past_a_limit_is_not_published_and_turns_go_on(
    tmp_path: Path, write: Callable[[Path], None], words: str
) -> None:
    await past_a_limit(tmp_path, write, words)


async def test_too_many_objects_at_once_are_not_published_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "PACK_LIMITS", PackLimits(objects=2))
    await past_a_limit(tmp_path, lambda folder: (folder / "x.md").write_text(note("x")), "3 objects at once; at most 2")


async def test_nor_is_what_a_box_is_not_let_to_send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout, "_PACK_LIMIT_BYTES", 100)
    words = "more than 67,108,864 bytes, compressed, at once: take the commit back"
    await past_a_limit(tmp_path, lambda folder: (folder / "x.md").write_text(note("x")), words)


async def test_a_message_past_its_limit_is_not_published_either(tmp_path: Path) -> None:
    message = "m" * DEFAULT_LIMITS.message_bytes
    await past_a_limit(
        tmp_path,
        lambda folder: (folder / "x.md").write_text(note("x")),
        "the message is longer than 65536 bytes",
        message,
    )


async def past_a_limit(tmp_path: Path, write: Callable[[Path], object], words: str, message: str = "too much") -> None:
    async with running_machine(tmp_path / "a") as one:
        before, text = one.published.head(), (await one.memory.compiled(AGENT)).text
        one.boxes.limit_s = 60.0
        write(one.checkout)
        agent_git(one.checkout, "add", "-A")
        agent_git(one.checkout, "commit", "-q", "--no-verify", "-m", message)
        report = await one.bring_in()
        assert (report.moved, "NOT published" in report.text, words in report.text) == (False, True, True), report.text
        status = await one.end_turn()
        assert (status.outcome, words in status.detail) == (SyncOutcome.INVALID, True), status
        assert words in "".join(one.memory.reminders(AGENT))
        assert one.published.head() == before
        assert (await one.memory.compiled(AGENT)).text == text
        programs = len(one.boxes.programs)
        assert (await one.bring_in()).text == ""
        assert len(one.boxes.programs) == programs
        agent_git(one.checkout, "reset", "-q", "--hard", str(before))
        assert (await one.end_turn()).outcome is not SyncOutcome.INVALID
        assert one.memory.reminders(AGENT) == ()
        in_order(one)


async def test_more_than_one_fetch_may_bring_is_not_brought_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_git_host(tmp_path / "hub") as hub:
        async with running_machine(tmp_path / "a", hub) as one, running_machine(tmp_path / "b", hub, False) as two:
            await one.end_turn()
            await two.memory.prepare(AGENT, None)
            text = (await two.memory.compiled(AGENT)).text
            draw = random.Random(1)
            for number in range(60):
                one.commit(f"pictures/p{number}.txt", draw.randbytes(20_000).hex())
            assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
            monkeypatch.setattr(published, "_MAX_FETCHED_BYTES", 500_000)
            assert await heard(two, hub) is SyncOutcome.PUSH_FAILED
            assert "more than one fetch may bring (500,000 bytes)" in two.memory.status(AGENT).detail
            assert "more than one fetch may bring" in two.memory.reminders(AGENT)[0]
            assert list(two.published.repository.glob("objects/pack/tmp_*")) == []
            assert (await two.memory.compiled(AGENT)).text == text
            two.commit("mine.md", note("mine"))
            assert (await two.bring_in()).moved
            monkeypatch.undo()
            assert (await two.end_turn()).outcome is SyncOutcome.PUSHED
            in_order(two)


async def test_a_memory_that_fills_its_place_at_the_hub_is_told_of_and_still_read(tmp_path: Path) -> None:
    with running_git_host(tmp_path / "hub", HostLimits(repository_bytes=3000)) as hub:
        async with running_machine(tmp_path / "a", hub) as one:
            assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
            pushed = one.published.head()
            for number in range(30):
                one.commit(f"n{number}.md", note(f"{number}" * 50))
                await one.end_turn()
            status = one.memory.status(AGENT)
            assert status.outcome is SyncOutcome.PUSH_FAILED
            assert "this memory takes all of the 3000 bytes it may" in status.detail
            assert status.ahead > 0
            assert hub.host.head(AGENT) not in (None, pushed, one.published.head())
            two = Machine(tmp_path / "b", hub)
            try:
                await two.memory.prepare(AGENT, None)
                assert two.published.head() == hub.host.head(AGENT)
            finally:
                await two.memory.aclose()


async def test_a_hub_that_takes_no_more_memories_says_so_and_turns_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repositories, "MAX_REPOSITORIES", 1)
    with running_git_host(tmp_path / "hub") as hub:
        hub.host.sharing.create("team")
        async with running_machine(tmp_path / "a", hub) as one:
            for number in range(2):
                head = one.commit(f"n{number}.md", note(f"{number}"))
                assert (await one.bring_in()).head == head
                status = await one.end_turn()
                assert (status.outcome, status.head) == (SyncOutcome.PUSH_FAILED, head)
                assert "holds 1 memories, which is all it takes" in status.detail
                assert "holds 1 memories" in one.memory.reminders(AGENT)[0]
            monkeypatch.undo()
            assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
            in_order(one)


@pytest.mark.parametrize("is_new", [False, True])
async def test_a_history_with_an_object_that_no_box_takes_is_told_of_and_turns_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    monkeypatch.setattr(packs, "PART_BYTES", 200_000)
    monkeypatch.setattr(packs, "BOX_TAKES_BYTES", 400_000)
    with running_git_host(tmp_path / "hub") as hub:
        async with running_machine(tmp_path / "a", hub) as one, running_machine(tmp_path / "b", hub, False) as two:
            await one.end_turn()
            if not is_new:
                await two.memory.prepare(AGENT, None)
            pushed = with_another_program(tmp_path / "clone", hub)
            if is_new:
                await two.memory.prepare(AGENT, None)
                await two.end_turn()
            else:
                await heard(two, hub)
            assert two.memory.status(AGENT).outcome is SyncOutcome.INVALID
            told = two.memory.status(AGENT).detail
            assert "more than the 400,000 bytes that a box takes" in told
            assert "`lodger memory resolve --theirs`" in told
            assert two.published.head() == pushed
            assert "small.md" in (await two.memory.compiled(AGENT)).text
            if not is_new:
                mine = two.commit("mine.md", note("mine"))
                assert (await two.bring_in()).moved
                assert (await two.end_turn()).outcome is SyncOutcome.INVALID
                assert agent_git(hub.host._repositories.path(AGENT), "show", "main:mine.md") == note("mine").strip()
                assert agent_git(two.checkout, "rev-parse", "main") == mine
            # What can be sent of it is not sent again and again.
            scripts = sent(two)
            assert (await two.end_turn()).outcome is SyncOutcome.INVALID
            assert sent(two) == scripts > 0
            assert two.fsck() == ""


def sent(machine: Machine) -> int:
    """How many packs went into its boxes."""
    return sum(argv[0] == "/bin/sh" for argv in machine.boxes.programs)


def with_another_program(place: Path, hub: RunningHost) -> str:
    """A large file is committed and removed again, which leaves a valid memory with it in the history."""
    url = hub.url(AGENT).replace("://", f"://letta:{TOKEN}@")
    agent_git(place.parent, "clone", "-q", url, str(place))
    (place / "large.bin").write_bytes(random.Random(3).randbytes(1_500_000))
    identity = ("-c", "user.name=c", "-c", "user.email=c@d")
    agent_git(place, "add", "-A")
    agent_git(place, *identity, "commit", "-q", "-m", "large")
    (place / "large.bin").unlink()
    (place / "small.md").write_text(note("small"))
    for number in range(3):
        (place / f"part{number}.txt").write_bytes(random.Random(number).randbytes(75_000).hex().encode())
    agent_git(place, "add", "-A")
    agent_git(place, *identity, "commit", "-q", "-m", "small")
    agent_git(place, "push", "-q", "origin", "main")
    return agent_git(place, "rev-parse", "main")
