"""The setting that lends the person's ssh agent, through a whole daemon: with it keys are listed, without it not."""

import subprocess
from pathlib import Path

import pytest

from support.program_client import bash, local_client, open_conversation, script
from support.programs import new_world
from support.ssh_agent import keys_in, ssh_agent

pytestmark = [pytest.mark.needs("bwrap", "ssh-agent"), pytest.mark.timeout(120)]


@pytest.mark.parametrize("lent", [True, False])
async def test_keys_are_listed_in_a_box_where_the_setting_says_so(tmp_path: Path, lent: bool) -> None:
    key = tmp_path / "key"
    subprocess.run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)), check=True)  # noqa: ASYNC221
    with ssh_agent(tmp_path / "agent", key) as agent:
        async with new_world("ssh-agent") as world:
            home = world.home("a")
            settings = home.lodger / "config" / "settings.toml"
            settings.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            settings.write_text(f"[network]\nssh_agent = {str(lent).lower()}\n")
            environment = {"SSH_AUTH_SOCK": str(agent)}
            daemon = await world.daemon(home, endpoint=await world.endpoint(), more_environment=environment)
            assert daemon.first, daemon.last_words()
            async with local_client(home.socket) as client:
                talk = await open_conversation(client, cwd=home.workspace)
                known = (await client.request({"type": "lodger_status"}))["status"]["ssh_agent"]
                turn = await talk.turn(script({"calls": [bash("ssh-add -l 2>&1 || true")]}, {"text": "done"}))
        assert (keys_in(agent).strip() in turn.results[-1]) is lent, turn.results
    assert known == {"state": "there" if lent else "not_asked", "at": str(agent)}
