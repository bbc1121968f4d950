"""Whom the kernel kills first when memory runs out: never the runner while something that it started is there."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lodger_tools.box.contract import BoxCall, BoxKey, RunProgram
from lodger_tools.box.manager import BoxManager
from lodger_tools.runner.children import Children
from lodger_tools.runner.memory_rank import OF_CHILDREN, MemoryRank, open_own_rank
from lodger_tools.runner.poll import Poll
from support.needed_programs import needed
from support.real_boxes import RealRequests, workspace_for_tests

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc")
STARTS = 600
FIRST_ACT = r"""
#include <fcntl.h>
#include <unistd.h>
int main(void) {
  char rank[16];
  int fd = open("/proc/self/oom_score_adj", O_RDONLY);
  return write(1, rank, read(fd, rank, sizeof rank)) > 0 ? 0 : 1;
}
"""
"""Linked without a loader: it looks some tens of microseconds after its birth."""
RANK = str(OF_CHILDREN)


def own_rank(pid: int) -> str:
    return Path(f"/proc/{pid}/oom_score_adj").read_text().strip()


@pytest.mark.needs("bwrap")
async def test_what_a_box_starts_has_its_rank_from_birth(tmp_path: Path) -> None:
    with workspace_for_tests() as workspace:
        program = workspace / "first_act"
        words = (needed("gcc"), "-O1", "-static", "-x", "c", "-o", str(program), "-")
        subprocess.run(words, input=FIRST_ACT.encode(), check=True)  # noqa: ASYNC221
        program.chmod(0o755)
        manager = BoxManager(tmp_path / "boxes", RealRequests(tmp_path, Path.home()))
        key = BoxKey("agent-1", str(workspace))
        try:
            ranks = [
                (await manager.run(key, BoxCall(f"k{number}", RunProgram((str(program),)), "/"))).data.strip()
                for number in range(STARTS)
            ]
            assert ranks == [RANK.encode()] * STARTS
            assert own_rank(manager.statuses()[0].host_pid) == own_rank(os.getpid()), "the runner keeps its own"
        finally:
            await manager.end(key)
            await manager.aclose()


def test_a_forked_child_too_and_not_by_way_of_its_parent() -> None:
    before = own_rank(os.getpid())
    children = Children(Poll(), MemoryRank(open_own_rank()))
    with tempfile.TemporaryFile() as shown:
        ended: list[int] = []

        def work() -> tuple[bool, str]:
            return True, own_rank(os.getpid())

        children.fork(work, "/", shown.fileno(), ended.append)
        while not ended:
            children.reap()
        shown.seek(0)
        assert (ended, shown.read()) == ([0], RANK.encode())
    assert own_rank(os.getpid()) == before


def test_where_the_kernel_has_no_ranks_things_start_all_the_same() -> None:
    assert MemoryRank(-1).start(lambda: 7) == 7
