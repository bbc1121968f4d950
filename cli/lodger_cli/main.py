"""`lodger`: the command line. Each command's work is imported when it is called, so that every one starts fast."""

import sys
from typing import Annotated, Final, cast

import typer

from lodger_cli.for_programs import is_typed_in, json_is_asked_for
from lodger_cli.hub_options import HubReach, with_hub_reach
from lodger_cli.memory_commands import memory
from lodger_cli.options import (
    Agent,
    Conversation,
    Folder,
    Json,
    JsonFrames,
    JsonRecords,
    LogFile,
    Model,
    PermissionMode,
    WhileFd,
)
from lodger_cli.ports_commands import ports
from lodger_cli.service_commands import service

app = typer.Typer(
    name="lodger",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
sandbox = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The box that agents' commands run in.")
app.add_typer(memory, name="memory")
app.add_typer(service, name="service")
app.add_typer(ports, name="ports")
app.add_typer(sandbox, name="sandbox")
devices = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Who may use this hub: phones, and this machine's own programs."
)
app.add_typer(devices, name="devices")


def _show_version(wanted: bool) -> None:
    if wanted:
        from lodger_daemon.version import VERSION

        typer.echo(f"lodger {VERSION}")
        raise typer.Exit


@app.callback()
def lodger(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A room for your AI agent on every computer you own."""


@app.command()
@with_hub_reach
def up(
    *,
    port: Annotated[int, typer.Option(metavar="PORT", help="The hub's port on loopback; 0 takes any free one.")] = 8377,
    reach: HubReach,
    as_json: Json = False,
) -> None:
    """Run a hub and a daemon on this machine until Ctrl-C."""
    from lodger_cli.serve import HubFlags
    from lodger_cli.up import up as run

    run(HubFlags.of("127.0.0.1", port, reach), as_json=as_json)


@app.command()
def daemon(
    hub: Annotated[str, typer.Option(metavar="URL", help="The hub to dial, instead of the one in the settings.")] = "",
    hub_token_file: Annotated[
        str, typer.Option(metavar="FILE", help="The file that holds this machine's token for it.")
    ] = "",
    log_file: LogFile = "",
    while_fd: WhileFd = -1,
) -> None:
    """Run the daemon of this machine."""
    from lodger_cli.serve import run_daemon

    run_daemon(hub=hub, hub_token_file=hub_token_file, listen=None, while_fd=while_fd, log_file=log_file)


@app.command("app-server")
def app_server(
    listen: Annotated[
        str, typer.Option(metavar="URL", help="Where to listen; port 0 takes any free one.")
    ] = "ws://127.0.0.1:0",
    ws_auth: Annotated[str, typer.Option(metavar="HOW", help="`capability-token` asks every client for a token.")] = "",
    ws_token_file: Annotated[str, typer.Option(metavar="FILE", help="The absolute path of the token's file.")] = "",
    ws_token_sha256: Annotated[str, typer.Option(metavar="HEX", help="Or the token's SHA-256 in hex.")] = "",
    while_fd: WhileFd = -1,
) -> None:
    """Run the daemon for a desktop app on this machine.

    It speaks protocol v2; the first line on standard output is JSON and says where.
    """
    from lodger_cli.serve import AppServerFlags, run_daemon

    flags = AppServerFlags(listen, ws_auth, ws_token_file, ws_token_sha256)
    run_daemon(hub="", hub_token_file="", listen=flags, while_fd=while_fd)


@app.command()
@with_hub_reach
def hub(
    *,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; beyond loopback only with a certificate.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", help="0 takes any free port.")] = 8377,
    reach: HubReach,
    log_file: LogFile = "",
    while_fd: WhileFd = -1,
) -> None:
    """Run the hub that connects your machines.

    The first line on standard output is JSON and says where it listens.
    """
    from lodger_cli.serve import HubFlags, run_hub

    run_hub(HubFlags.of(host, port, reach), while_fd=while_fd, log_file=log_file)


@app.command()
def pair(
    machine: Annotated[
        bool, typer.Option("--machine", help="A code for `lodger join` on another machine, not for a phone.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a code that lets a phone or browser in.

    A picture to scan comes with it. The code works once, within ten minutes.
    """
    from lodger_cli.pair import pair as run

    run(machine=machine, as_json=as_json)


@app.command()
def join(
    url: Annotated[str, typer.Argument(metavar="URL", help="The hub's address, as `lodger pair --machine` shows it.")],
    code: Annotated[str, typer.Argument(metavar="CODE", help="Its code.")],
    fingerprint: Annotated[
        str,
        typer.Option(
            metavar="SHA256", help="Of the certificate that the hub made itself; it is kept, and only it counts."
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Make this machine one of those behind a hub."""
    from lodger_cli.join import join as run

    run(url, code, fingerprint=fingerprint, as_json=as_json)


@devices.command("list")
def devices_list(as_json: Json = False) -> None:
    """Every device with a token of this hub, and when it was last seen."""
    from lodger_cli.devices import list_devices as run

    run(as_json=as_json)


@devices.command("revoke")
def devices_revoke(
    device: Annotated[str, typer.Argument(metavar="DEVICE", help="A device's id, or its name.")],
    as_json: Json = False,
) -> None:
    """Take a device's token away; its connections are closed at once."""
    from lodger_cli.devices import revoke as run

    run(device, as_json=as_json)


@devices.command("rotate")
def devices_rotate(
    device: Annotated[
        str, typer.Argument(metavar="DEVICE", help="A device's id or name; `machine` or `client` for this hub's own.")
    ],
    as_json: Json = False,
) -> None:
    """Replace a token; the old one stops working at once, on open connections too."""
    from lodger_cli.devices import rotate as run

    run(device, as_json=as_json)


@devices.command("release")
def devices_release(
    machine: Annotated[str, typer.Argument(metavar="MACHINE", help="A machine's id, or its name.")],
    as_json: Json = False,
) -> None:
    """Let another token have a machine's id, as when the machine was set up anew."""
    from lodger_cli.devices import release as run

    run(machine, as_json=as_json)


@app.command()
def ask(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The message; `-` reads it from standard input.")],
    agent: Agent = "",
    model: Model = "",
    cwd: Folder = "",
    conversation: Conversation = "default",
    mode: PermissionMode = "",
    image: Annotated[
        list[str], typer.Option("--image", metavar="FILE", help="A picture to go along; may be repeated.")
    ] = [],  # noqa: B006 - typer's way to say "none", and it is only read
    max_turns: Annotated[
        int | None, typer.Option("--max-turns", metavar="N", min=1, help="How often the model may be asked at most.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", min=0.001, help="Interrupt the turn after so long."),
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Wait neither for background work nor until memory has been synced.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Ask once and print the answer.

    Starts a daemon for the call when none runs. Without a terminal, calls that need your answer are denied.
    """
    from lodger_cli.ask import Asking
    from lodger_cli.ask import ask as run

    run(
        Asking(
            text,
            agent,
            model,
            cwd,
            conversation,
            mode,
            wait=not no_wait,
            as_json=as_json,
            images=tuple(image),
            max_turns=max_turns,
            timeout_s=timeout,
        )
    )


@app.command()
def chat(
    agent: Agent = "",
    model: Model = "",
    cwd: Folder = "",
    conversation: Conversation = "default",
    mode: PermissionMode = "",
    machine: Annotated[
        str, typer.Option(metavar="NAME", help="Another of your machines, by name or id; without it this one.")
    ] = "",
    as_json: JsonFrames = False,
) -> None:
    """Talk to the agent in the terminal."""
    from lodger_cli.chat import Chatting
    from lodger_cli.chat import chat as run

    run(Chatting(agent, model, cwd, conversation, mode, machine, as_json))


@app.command()
def status(as_json: Json = False) -> None:
    """Show what is true now, each fact with its age."""
    from lodger_cli.status import status as run

    run(as_json=as_json)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Look for what is wrong here, and say how to mend it.

    Exits with 1 when something is wrong; a warning is not.
    """
    from lodger_cli.doctor import doctor as run

    run(as_json=as_json)


@app.command()
def logs(
    part: Annotated[str, typer.Option(metavar="PART", help="`daemon` or `hub`; without it both.")] = "",
    lines: Annotated[int, typer.Option("--lines", "-n", metavar="N", min=0, help="How many at the most.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written from now on.")] = False,
    as_json: JsonRecords = False,
) -> None:
    """Show what daemon and hub wrote.

    Where their logs are goes to standard error.
    """
    from lodger_cli.logs import logs as run

    if part not in ("", "daemon", "hub"):
        raise typer.BadParameter("daemon or hub", param_hint="--part")
    run(part=part, lines=lines, follow=follow, as_json=as_json)


@app.command()
def connect(
    provider: Annotated[
        str, typer.Argument(metavar="PROVIDER", help="openai, anthropic, openai-compatible, or a name of your own.")
    ],
    base_url: Annotated[str, typer.Option(metavar="URL", help="The endpoint's address, up to and with /v1.")] = "",
    api_key_file: Annotated[
        str, typer.Option(metavar="FILE", help="A file that holds the key; `-` reads it from standard input.")
    ] = "",
    dialect: Annotated[
        str, typer.Option(metavar="NAME", help="What it speaks: openai (the usual), anthropic or litellm.")
    ] = "",
    model: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A model it serves and does not list; may be repeated.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Forget the provider and its key.")] = False,
    as_json: Json = False,
) -> None:
    """Connect a model provider.

    Its key stays on this machine. It is asked for or read from a file, never given on the command line.
    """
    from lodger_cli.connect import connect as run

    described = {"base_url": base_url, "dialect": dialect, "models": ",".join(model or ())}
    run(provider, described, api_key_file=api_key_file, remove=remove, as_json=as_json)


@app.command()
def models(as_json: Json = False) -> None:
    """List the models that can be used here."""
    from lodger_cli.connect import models as run

    run(as_json=as_json)


@sandbox.command(
    "run",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    options_metavar="[OPTIONS] -- CMD…",
)
def sandbox_run(
    context: typer.Context,
    policy: Annotated[
        str,
        typer.Option("--policy", metavar="POLICY", help="agent, strict, read-only, guard, person or memory-worker."),
    ] = "agent",
    explain: Annotated[bool, typer.Option("--explain", help="Print the policy in words, and run nothing.")] = False,
) -> None:
    """Run CMD as an agent's command would run here.

    It gets a box on the current folder. The exit code is that of CMD; 126 when no box can be had.
    """
    from lodger_cli.sandbox import run

    run(context.args, policy=policy, explain=explain)


Misuse: Final = cast("type[typer.BadParameter]", typer.BadParameter.__base__)
"""Whatever is wrong with what was typed; of its kinds typer gives a name to this one only."""


def main() -> None:
    """The entry point of the `lodger` command."""
    try:
        code = app(standalone_mode=False)
    except Misuse as error:
        _tell_misuse(error)
        code = error.exit_code
    except typer.Abort:
        from lodger_cli.terminal import fail

        fail("nothing was typed where something was asked for, so nothing was done")
    except Exception as error:
        if json_is_asked_for():  # the trace that follows is nothing a program can read
            from lodger_cli.terminal import say_failure

            say_failure(f"{type(error).__name__}: {error}")
        raise
    raise SystemExit(code)


def _tell_misuse(error: typer.BadParameter) -> None:
    error.show()
    if is_typed_in(sys.argv[1:]):
        from lodger_cli.terminal import say_failure

        say_failure(error.format_message())


if __name__ == "__main__":
    main()
