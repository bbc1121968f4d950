"""F1's kind: an agent that is told to work in Lodger's own folder could change what runs outside every box."""

import os
from pathlib import Path

import pytest

from lodger_daemon.paths import find_paths
from lodger_daemon.service.installation import installation_folders
from support.program_client import Client, bash, local_client, open_conversation, script
from support.programs import ROOT, new_world


@pytest.mark.parametrize("folder", [ROOT, ROOT / "cli"], ids=["the source tree", "a folder of it"])
async def test_no_agent_works_in_the_programs_own_folder(folder: Path) -> None:
    """Not where a client asks for it, nor where the settings say so: then the call is refused."""
    planted = folder / "planted-by-an-agent"
    async with new_world("own") as world:
        home = world.home("a")
        (home.lodger / "config").mkdir()
        (home.lodger / "config" / "settings.toml").write_text(f'[machine]\nworkspace = "{folder}"\n')
        daemon = await world.daemon(home, endpoint=await world.endpoint())
        assert daemon.first, daemon.last_words()
        async with local_client(home.socket) as client:
            assert "Lodger itself lies in" in await refused(client, folder)
            conversation = await open_conversation(client)
            turn = await conversation.turn(script({"calls": [bash(f"touch {planted.name}")]}, {"text": "done"}))
    assert "Lodger itself lies in" in str(turn.results)
    assert not planted.exists()


async def test_a_folder_that_no_box_can_have_is_refused_where_it_is_chosen() -> None:
    async with new_world("own") as world:
        home = world.home("a")
        link, closed = home.workspace / "link", home.workspace / "closed"
        link.symlink_to(home.home)
        closed.mkdir(mode=0o500)
        os.chown(closed, 0, 0) if os.geteuid() == 0 else None
        daemon = await world.daemon(home, endpoint=await world.endpoint())
        assert daemon.first, daemon.last_words()
        async with local_client(home.socket) as client:
            for folder, words in (
                (Path("/"), "is the home or holds it"),
                (home.home, "is the home or holds it"),
                (Path("/usr"), "belongs to the system"),
                (home.home.parent, "is the home or holds it"),
                (link, "is a link"),
                (closed, "setfacl"),
            ):
                assert words in await refused(client, folder), folder
            conversation = await open_conversation(client, cwd=home.workspace)
            for frame in (
                {"type": "change_device_state", "runtime": conversation.runtime, "payload": {"cwd": "/usr"}},
                {"type": "set_boot_working_directory", "cwd": "/usr"},
            ):
                after = len(client.frames)
                await client.send({**frame, "request_id": "r"})
                await client.wait(lambda got: "belongs to the system" in str(got), after)
            turn = await conversation.turn(script({"calls": [bash("pwd")]}, {"text": "done"}))
            assert str(home.workspace) in str(turn.results)


async def refused(client: Client, folder: Path) -> str:
    """With what words nobody can work there."""
    frame = {"type": "runtime_start", "client_info": {"name": "test"}, "conversation_id": "default", "cwd": str(folder)}
    answer = await client.request({**frame, "create_agent": {"body": {"name": "Tester"}}})
    assert not answer["success"], answer
    return str(answer["error"])


def test_the_folder_agents_get_by_themselves_is_none_of_ours() -> None:
    """A clone in the home has the project's name."""
    workspace = find_paths({"HOME": str(ROOT.parent)}).workspace
    assert str(ROOT) in installation_folders()
    assert not any(Path(place).is_relative_to(workspace) for place in installation_folders())
    assert find_paths({"HOME": "/home/ada"}).workspace.name != "lodger"
