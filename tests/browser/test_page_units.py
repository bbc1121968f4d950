"""The page's pure parts, by the tests that lie beside them (hub/web/tests): Node's runner says what failed."""

import asyncio

import pytest

from support.programs import ROOT

pytestmark = pytest.mark.timeout(240)


async def test_the_pages_own_tests() -> None:
    runner = await asyncio.create_subprocess_exec(
        "bash",
        str(ROOT / "scripts" / "test-page.sh"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said = (await runner.communicate())[0].decode("utf-8", "replace")
    assert runner.returncode == 0, said
    (passed,) = [line.split()[-1] for line in said.splitlines() if line.startswith("# pass ")]
    assert int(passed) >= 30, said
