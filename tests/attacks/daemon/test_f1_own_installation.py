"""F1's kind: an agent that is told to work in Lodger's own folder could change what runs outside every box."""

from pathlib import Path

import pytest

from lodger_daemon.paths import find_paths
from lodger_daemon.service.installation import installation_folders
from support.program_client import bash, local_client, open_conversation, script
from support.programs import ROOT, new_world


@pytest.mark.parametrize("folder", [ROOT, ROOT / "cli"], ids=["the source tree", "a folder of it"])
async def test_no_agent_works_in_the_programs_own_folder(folder: Path) -> None:
    planted = folder / "planted-by-an-agent"
    async with new_world("own") as world:
        home = world.home("a")
        daemon = await world.daemon(home, endpoint=await world.endpoint())
        assert daemon.first, daemon.last_words()
        async with local_client(home.socket) as client:
            conversation = await open_conversation(client, cwd=folder)
            turn = await conversation.turn(script({"calls": [bash(f"touch {planted.name}")]}, {"text": "done"}))
    assert "Lodger itself lies in" in str(turn.results)
    assert not planted.exists()


def test_the_folder_agents_get_by_themselves_is_none_of_ours() -> None:
    """A clone in the home has the project's name."""
    workspace = find_paths({"HOME": str(ROOT.parent)}).workspace
    assert str(ROOT) in installation_folders()
    assert not any(Path(place).is_relative_to(workspace) for place in installation_folders())
    assert find_paths({"HOME": "/home/ada"}).workspace.name != "lodger"
