"""A memory into one file and back, and out as plain files. Real git."""

from pathlib import Path

import pytest

from lodger_daemon.memory.backups import NotRestored, Restored, export_files, read_backup, restore, write_backup
from lodger_daemon.memory.core.wanted_paths import BadRequest
from lodger_daemon.memory.published import MAIN
from support.memory_machines import AGENT, CARD, Machine, note
from support.plain_boxes import agent_git

NOW_S = 1_700_000_000


async def remembering(folder: Path) -> Machine:
    machine = Machine(folder, None)
    await machine.memory.prepare(AGENT, CARD)
    machine.commit("notes/fact.md", note("blue"))
    machine.commit("tool.sh", "#!/bin/sh\n")
    await machine.end_turn()
    return machine


async def test_a_new_machine_gets_all_of_it(tmp_path: Path) -> None:
    one, file = await remembering(tmp_path / "a"), tmp_path / "memory.bundle"
    other = Machine(tmp_path / "b", None)
    try:
        one.published.set_ref("refs/lodger/rescue/1-local", one.published.head() or "")
        head = write_backup(one.published, AGENT, file)
        assert file.stat().st_mode & 0o077 == 0
        assert one.published.git.line("for-each-ref", "refs/lodger/backup-of") == ""
        found = read_backup(file)
        assert (found.agent_id, found.main) == (AGENT, head)
        other.published.folder.mkdir(parents=True)
        assert restore(other.published, found, NOW_S) == Restored(head, changed=True)
        refs = other.published.git.line("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        assert refs == [
            f"{MAIN} {head}",
            f"refs/lodger/rescue/main {head}",
            f"refs/lodger/rescue/rescue/1-local {head}",
        ]
        await other.memory.prepare(AGENT, None)
        assert (other.checkout / "notes" / "fact.md").read_text() == note("blue")
        assert other.fsck() == ""
    finally:
        await one.memory.aclose()
        await other.memory.aclose()


async def test_it_comes_back_on_top_of_what_is_there(tmp_path: Path) -> None:
    one, file = await remembering(tmp_path / "a"), tmp_path / "memory.bundle"
    try:
        then = write_backup(one.published, AGENT, file)
        one.commit("notes/fact.md", None)
        one.commit("later.md", note("later"))
        await one.end_turn()
        later = one.published.head() or ""
        result = restore(one.published, read_backup(file), NOW_S)
        assert isinstance(result, Restored)
        assert result.changed
        assert one.published.commit(result.head).parents == (later,)
        assert one.published.commit(result.head).tree == one.published.commit(then).tree
        await one.end_turn()
        assert (one.checkout / "notes" / "fact.md").exists()
        assert not (one.checkout / "later.md").exists()
        assert restore(one.published, read_backup(file), NOW_S + 1) == Restored(result.head, changed=False)
        assert one.fsck() == ""
    finally:
        await one.memory.aclose()


async def test_files_that_are_no_backup_change_nothing(tmp_path: Path) -> None:
    one, file = await remembering(tmp_path / "a"), tmp_path / "memory.bundle"
    other = Machine(tmp_path / "b", None)
    try:
        head = write_backup(one.published, AGENT, file)
        with pytest.raises(FileExistsError):
            write_backup(one.published, AGENT, file)
        whole, refs = file.read_bytes(), one.published.git.line("for-each-ref")
        cut = tmp_path / "cut.bundle"
        cut.write_bytes(whole[: len(whole) // 2])
        # Where every object is there already, git need not read the rest.
        other.published.folder.mkdir(parents=True)
        with pytest.raises(BadRequest):
            restore(other.published, read_backup(cut), NOW_S)
        assert list(other.published.folder.iterdir()) == []
        for text in (b"", b"notes\n\n", whole[:30], whole.replace(b" refs/heads/main\n", b" refs/heads/mine\n")):
            cut.write_bytes(text)
            with pytest.raises(BadRequest):
                read_backup(cut)
        assert (one.published.head(), one.published.git.line("for-each-ref")) == (head, refs)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "cut.bundle", "memory.bundle"]
    finally:
        await one.memory.aclose()
        await other.memory.aclose()


async def test_what_is_no_valid_memory_is_not_restored(tmp_path: Path) -> None:
    one, work, file = await remembering(tmp_path / "a"), tmp_path / "work", tmp_path / "evil.bundle"
    other = Machine(tmp_path / "b", None)
    try:
        agent_git(tmp_path, "clone", "-q", str(one.published.repository), str(work))
        (work / "link.md").symlink_to("/etc/passwd")
        agent_git(work, "add", "-A")
        agent_git(work, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-q", "-m", "planted")
        agent_git(work, "bundle", "create", "-q", str(file), "main")
        head = one.published.head()
        assert isinstance(restore(one.published, read_backup(file), NOW_S), NotRestored)
        assert one.published.head() == head
        other.published.folder.mkdir(parents=True)
        assert isinstance(restore(other.published, read_backup(file), NOW_S), NotRestored)
        assert not other.published.exists()
        assert list(other.published.folder.iterdir()) == []
    finally:
        await one.memory.aclose()
        await other.memory.aclose()


async def test_export(tmp_path: Path) -> None:
    one = await remembering(tmp_path / "a")
    try:
        head = one.published.head() or ""
        assert export_files(one.published, head, "main", tmp_path / "out") == 5
        assert (tmp_path / "out" / "notes" / "fact.md").read_text() == note("blue")
        first = one.published.git.line("rev-list", "--max-parents=0", head)
        assert export_files(one.published, head, first, tmp_path / "first") == 3
        with pytest.raises(FileExistsError):
            export_files(one.published, head, "main", tmp_path / "out")
        with pytest.raises(BadRequest):
            export_files(one.published, head, "main~1", tmp_path / "odd")
    finally:
        await one.memory.aclose()
