"""`lodger ports …`: what is typed; its work is in `ports.py`, imported when it is called."""

from typing import Annotated

import typer

from lodger_cli.options import Json

ports = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="What agents' programs listen at, and what of it is open here."
)
Workspace = Annotated[
    str, typer.Option("--workspace", metavar="FOLDER", help="Which is meant, where several boxes have the port.")
]


@ports.command("list")
def ports_list(as_json: Json = False) -> None:
    """Every port that something in a box listens at, and where it is open."""
    from lodger_cli.ports import list_ports as run

    run(as_json=as_json)


@ports.command("open")
def ports_open(
    port: Annotated[int, typer.Argument(metavar="PORT", help="The port in the box.")],
    workspace: Workspace = "",
    as_json: Json = False,
) -> None:
    """Open a port of a box at 127.0.0.1 of this machine, until the box ends."""
    from lodger_cli.ports import open_port as run

    run(port, workspace, as_json=as_json)


@ports.command("close")
def ports_close(
    port: Annotated[int, typer.Argument(metavar="PORT", help="The port here, or the one in the box.")],
    workspace: Workspace = "",
    as_json: Json = False,
) -> None:
    """Close a port; who is connected is cut off, and nobody is asked about it again while the box lives."""
    from lodger_cli.ports import close_port as run

    run(port, workspace, as_json=as_json)
