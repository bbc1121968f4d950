"""`lodger memory`: its commands and their words."""

from typing import Annotated

import typer

from lodger_cli.options import Agent, Json, MemoryCommit, SharedName, Sure

memory = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="An agent's memory on this machine.")


@memory.command("status")
def memory_status(agent: Agent = "", shared: SharedName = "", as_json: Json = False) -> None:
    """Show the state of an agent's memory and of its last sync."""
    from lodger_cli.memory import status as run

    run(agent, shared, as_json=as_json)


@memory.command("log")
def memory_log(
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="Only commits that changed this file.")] = "",
    agent: Agent = "",
    limit: Annotated[int, typer.Option(metavar="N", help="How many commits at the most.")] = 20,
    shared: SharedName = "",
    as_json: Json = False,
) -> None:
    """List what the agent has remembered, newest first."""
    from lodger_cli.memory import log as run

    run(agent, shared, limit=limit, path=path, as_json=as_json)


@memory.command("show")
def memory_show(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A file of the memory.")],
    at: MemoryCommit = "main",
    agent: Agent = "",
    shared: SharedName = "",
    as_json: Json = False,
) -> None:
    """Print a file of the memory, as it is now or was at a commit."""
    from lodger_cli.memory import show as run

    run(agent, shared, path, at=at, as_json=as_json)


@memory.command("diff")
def memory_diff(
    commit: Annotated[str, typer.Argument(metavar="[COMMIT]", help="Its id, or main.")] = "main",
    agent: Agent = "",
    shared: SharedName = "",
    as_json: Json = False,
) -> None:
    """Show what a commit changed; without one, the latest."""
    from lodger_cli.memory import diff as run

    run(agent, shared, commit, as_json=as_json)


@memory.command("pull")
def memory_pull(agent: Agent = "", shared: SharedName = "", as_json: Json = False) -> None:
    """Ask the remote for newer memory, and sync."""
    from lodger_cli.memory import sync as run

    run(agent, shared, fetch=True, as_json=as_json)


@memory.command("push")
def memory_push(agent: Agent = "", shared: SharedName = "", as_json: Json = False) -> None:
    """Send what the remote has not yet."""
    from lodger_cli.memory import sync as run

    run(agent, shared, fetch=False, as_json=as_json)


@memory.command("resolve")
def memory_resolve(
    paths: Annotated[list[str] | None, typer.Argument(metavar="[PATH]...", help="Without one, everything.")] = None,
    ours: Annotated[bool, typer.Option("--ours", help="This machine's version counts.")] = False,
    theirs: Annotated[bool, typer.Option("--theirs", help="The other version counts.")] = False,
    both: Annotated[bool, typer.Option("--both", help="Put two histories together.")] = False,
    file: Annotated[str, typer.Option("--file", metavar="FILE", help="What FILE holds counts; - reads it here.")] = "",
    agent: Agent = "",
    shared: SharedName = "",
    as_json: Json = False,
) -> None:
    """Settle a conflict; without an option, show what there is to decide."""
    from lodger_cli.memory import resolve as run
    from lodger_cli.terminal import Exit, fail

    sides = [name for name, wanted in (("ours", ours), ("theirs", theirs), ("both", both)) if wanted]
    if len(sides) > 1:
        fail("give one of --ours, --theirs and --both", Exit.USAGE)
    run(agent, shared, paths or [], side=sides[0] if sides else "", content_file=file, as_json=as_json)


@memory.command("share")
def memory_share(
    name: Annotated[str, typer.Argument(metavar="NAME", help="a-z, 0-9, dot, _ and -.")], as_json: Json = False
) -> None:
    """Make a memory that agents share, at this machine's hub."""
    from lodger_cli.memory_shared import share as run

    run(name, as_json=as_json)


@memory.command("unshare")
def memory_unshare(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of a shared memory.")],
    undo: Annotated[bool, typer.Option("--undo", help="Bring it back, and to the agents that had it.")] = False,
    yes: Sure = False,
    as_json: Json = False,
) -> None:
    """Delete a shared memory at this machine's hub, which keeps it for 30 days."""
    from lodger_cli.memory_shared import unshare as run

    run(name, undo=undo, sure=yes, as_json=as_json)


@memory.command("attach")
def memory_attach(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of a shared memory.")],
    agent: Agent = "",
    read_only: Annotated[bool, typer.Option("--read-only", help="The agent cannot change it.")] = False,
    as_json: Json = False,
) -> None:
    """Give a shared memory to an agent, on every machine of this hub."""
    from lodger_cli.memory_shared import attach as run

    run(name, agent, read_only=read_only, as_json=as_json)


@memory.command("detach")
def memory_detach(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of a shared memory.")],
    agent: Agent = "",
    as_json: Json = False,
) -> None:
    """Take a shared memory from an agent."""
    from lodger_cli.memory_shared import detach as run

    run(name, agent, as_json=as_json)


@memory.command("shared")
def memory_shared(agent: Agent = "", as_json: Json = False) -> None:
    """List an agent's shared memories and how they are synced."""
    from lodger_cli.memory_shared import shared as run

    run(agent, as_json=as_json)


@memory.command("kept")
def memory_kept(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Only this one.")] = "",
    restore: Annotated[bool, typer.Option("--restore", help="Make the memory's files those of NAME.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Let go of NAME for good.")] = False,
    yes: Sure = False,
    agent: Agent = "",
    shared: SharedName = "",
    as_json: Json = False,
) -> None:
    """List what is kept beside the memory: sides of conflicts, replaced histories, commits that did not fit."""
    from lodger_cli.memory_kept import kept as run
    from lodger_cli.terminal import Exit, fail

    actions = [word for word, wanted in (("restore", restore), ("drop", drop)) if wanted]
    if len(actions) > 1 or (actions and not name):
        fail("give one NAME and one of --restore and --drop", Exit.USAGE)
    run(agent, shared, name, actions[0] if actions else "", sure=yes, as_json=as_json)


@memory.command("writers")
def memory_writers(
    writer: Annotated[str, typer.Argument(metavar="[ID]", help="Only this one.")] = "",
    cancel: Annotated[bool, typer.Option("--cancel", help="End it; what it has written is kept.")] = False,
    merge: Annotated[bool, typer.Option("--merge", help="Merge what is kept of it.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Throw away what is kept of it.")] = False,
    agent: Agent = "",
    as_json: Json = False,
) -> None:
    """List who wrote in the memory in the background, latest first."""
    from lodger_cli.memory_writers import writers as run
    from lodger_cli.terminal import Exit, fail

    actions = [name for name, wanted in (("cancel", cancel), ("merge", merge), ("drop", drop)) if wanted]
    if len(actions) > 1 or (actions and not writer):
        fail("give one ID and one of --cancel, --merge and --drop", Exit.USAGE)
    run(agent, writer, actions[0] if actions else "", as_json=as_json)


@memory.command("export")
def memory_export(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Made by this; may not be there yet.")],
    at: MemoryCommit = "main",
    agent: Agent = "",
    as_json: Json = False,
) -> None:
    """Write the memory's files into a folder."""
    from lodger_cli.memory_files import export as run

    run(agent, folder, at=at, as_json=as_json)


@memory.command("backup")
def memory_backup(
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="May not be there yet; without it one here.")] = "",
    agent: Agent = "",
    as_json: Json = False,
) -> None:
    """Write the whole memory, history and all that is kept of conflicts, into one file."""
    from lodger_cli.memory_files import backup as run

    run(agent, file, as_json=as_json)


@memory.command("restore")
def memory_restore(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What `lodger memory backup` wrote.")],
    agent: Agent = "",
    as_json: Json = False,
) -> None:
    """Bring a memory back from a backup; what is there now stays in its history."""
    from lodger_cli.memory_files import bring_back as run

    run(agent, file, as_json=as_json)


@memory.command("check")
def memory_check(agent: Agent = "", as_json: Json = False) -> None:
    """Have git look at every object of a memory here, and at the hub's copy where the hub is here too."""
    from lodger_cli.memory_files import check as run

    run(agent, as_json=as_json)


@memory.command("token")
def memory_token(
    host: Annotated[str, typer.Argument(metavar="HOST", help="`remote` or `mirror`, as in the settings.")],
    token_file: Annotated[
        str, typer.Option("--token-file", metavar="FILE", help="Read it there; - reads standard input.")
    ] = "",
    remove: Annotated[bool, typer.Option("--remove", help="Forget the stored token.")] = False,
    as_json: Json = False,
) -> None:
    """Store the token for a git host that carries or mirrors memory."""
    from lodger_cli.memory_token import store_token as run

    run(host, token_file=token_file, remove=remove, as_json=as_json)
