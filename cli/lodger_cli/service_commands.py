"""`lodger service …`: what is typed; its work is in `service.py`, imported when it is called."""

from typing import Annotated

import typer

from lodger_cli.hub_options import HubReach, with_hub_reach
from lodger_cli.options import Json

service = typer.Typer(no_args_is_help=True, help="Hub and daemon as services of this machine.")
System = Annotated[bool, typer.Option("--system", help="For the machine (as root), not for the user who types.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]


@service.command("install")
@with_hub_reach
def service_install(
    *,
    system: System = False,
    only: Annotated[str, typer.Option(metavar="PART", help="`hub` or `daemon`; without it both.")] = "",
    run_as: Annotated[
        str, typer.Option(metavar="USER", help="With --system: the user to run as; `lodger` without it.")
    ] = "",
    port: Annotated[int, typer.Option(metavar="PORT", help="The hub's port on loopback.")] = 8377,
    reach: HubReach,
    credential: Annotated[
        list[str],
        typer.Option(metavar="PROVIDER:FILE", help="A key the service manager hands to the daemon; may be repeated."),
    ] = [],  # noqa: B006 - typer's way to say "none", and it is only read
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Start hub and daemon with the machine, and keep them running.

    When the settings name a hub elsewhere, only the daemon is installed.
    """
    from lodger_cli.serve import HubFlags
    from lodger_cli.service import Wish, install

    if only not in ("", "hub", "daemon"):
        raise typer.BadParameter("hub or daemon", param_hint="--only")
    flags = HubFlags.of("127.0.0.1", port, reach)
    install(Wish(system, as_json, dry_run, flags, only, run_as, tuple(credential)))


@service.command("status")
def service_status(system: System = False, as_json: Json = False) -> None:
    """What is installed, and whether it runs."""
    from lodger_cli.service import Wish, status

    status(Wish(system, as_json))


@service.command("restart")
def service_restart(system: System = False, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Restart what is installed. Commands that agents run go on meanwhile."""
    from lodger_cli.service import Wish, restart

    restart(Wish(system, as_json, dry_run))


@service.command("uninstall")
def service_uninstall(system: System = False, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Stop the services and remove their files. Settings, memory and messages stay."""
    from lodger_cli.service import Wish, uninstall

    uninstall(Wish(system, as_json, dry_run))
