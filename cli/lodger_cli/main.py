"""`lodger`: the command line. Each command's work is imported when it is called, so that every one starts fast."""

from typing import Annotated

import typer

app = typer.Typer(
    name="lodger",
    help="A room for your AI agent on every computer you own.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
memory = typer.Typer(no_args_is_help=True, help="An agent's memory on this machine.")
sandbox = typer.Typer(no_args_is_help=True, help="The box that agents' commands run in.")
app.add_typer(memory, name="memory")
app.add_typer(sandbox, name="sandbox")

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Agent = Annotated[str, typer.Option("--agent", help="An agent's id; without it the first one.")]
Model = Annotated[str, typer.Option("--model", help="A model handle such as openai/NAME.")]
Folder = Annotated[str, typer.Option("--cwd", help="The folder the agent works in.")]
WhileFd = Annotated[int, typer.Option("--while-fd", hidden=True)]


@app.command()
def up(
    port: Annotated[int, typer.Option(help="The hub's port on loopback; 0 takes any free one.")] = 8377,
    as_json: Json = False,
) -> None:
    """Start a hub and a daemon on this machine, and keep them running until Ctrl-C."""
    from lodger_cli.up import up as run

    run(port=port, as_json=as_json)


@app.command()
def daemon(
    hub: Annotated[str, typer.Option(help="The control plane to dial, instead of the setting.")] = "",
    hub_token_file: Annotated[str, typer.Option(help="The file that holds this machine's token for it.")] = "",
    while_fd: WhileFd = -1,
) -> None:
    """Run the daemon of this machine."""
    from lodger_cli.serve import run_daemon

    run_daemon(hub=hub, hub_token_file=hub_token_file, listen=None, while_fd=while_fd)


@app.command("app-server")
def app_server(
    listen: Annotated[str, typer.Option(help="Where to listen; port 0 takes any free one.")] = "ws://127.0.0.1:0",
    ws_auth: Annotated[str, typer.Option(help="`capability-token` asks every client for a token.")] = "",
    ws_token_file: Annotated[str, typer.Option(help="The absolute path of the token's file.")] = "",
    ws_token_sha256: Annotated[str, typer.Option(help="Or the token's SHA-256 in hex.")] = "",
    while_fd: WhileFd = -1,
) -> None:
    """Serve protocol v2 to a desktop app on this machine; the first line on standard output is JSON."""
    from lodger_cli.serve import AppServerFlags, run_daemon

    flags = AppServerFlags(listen, ws_auth, ws_token_file, ws_token_sha256)
    run_daemon(hub="", hub_token_file="", listen=flags, while_fd=while_fd)


@app.command()
def hub(
    host: Annotated[str, typer.Option(help="Where to listen; beyond loopback only with a certificate.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes any free port.")] = 8377,
    tls_cert: Annotated[str, typer.Option(help="A certificate chain in PEM.")] = "",
    tls_key: Annotated[str, typer.Option(help="Its key.")] = "",
    while_fd: WhileFd = -1,
) -> None:
    """Run the control plane alone; the first line on standard output is JSON."""
    from lodger_cli.serve import run_hub

    run_hub(host=host, port=port, tls_cert=tls_cert, tls_key=tls_key, while_fd=while_fd)


@app.command()
def ask(
    text: Annotated[str, typer.Argument(help="The message; `-` reads it from standard input.")],
    agent: Agent = "",
    model: Model = "",
    cwd: Folder = "",
    conversation: Annotated[str, typer.Option(help="A conversation's id, `default` or `new`.")] = "default",
    mode: Annotated[str, typer.Option(help="strict, standard, acceptEdits or unrestricted.")] = "",
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Do not wait for background work and memory sync.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Ask once and print the answer. Starts a daemon for the call when none runs."""
    from lodger_cli.ask import Asking
    from lodger_cli.ask import ask as run

    run(Asking(text, agent, model, cwd, conversation, mode, wait=not no_wait, as_json=as_json))


@app.command()
def chat(
    agent: Agent = "",
    model: Model = "",
    cwd: Folder = "",
    conversation: Annotated[str, typer.Option(help="A conversation's id, `default` or `new`.")] = "default",
    machine: Annotated[str, typer.Option(help="The name of a machine behind the hub; without it this one.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print every frame as a line of JSON.")] = False,
) -> None:
    """Talk to the agent in the terminal, through the hub when one runs."""
    from lodger_cli.chat import Chatting
    from lodger_cli.chat import chat as run

    run(Chatting(agent, model, cwd, conversation, machine, as_json))


@app.command()
def status(as_json: Json = False) -> None:
    """What is true now, each fact with its age."""
    from lodger_cli.status import status as run

    run(as_json=as_json)


@app.command()
def doctor(as_json: Json = False) -> None:
    """What is wrong on this machine, and how to mend it. Exits 1 when something is."""
    from lodger_cli.doctor import doctor as run

    run(as_json=as_json)


@app.command()
def connect(
    provider: Annotated[str, typer.Argument(help="openai, anthropic, openai-compatible, or a name of your own.")],
    base_url: Annotated[str, typer.Option(help="The endpoint's address, up to and with /v1.")] = "",
    api_key_file: Annotated[
        str, typer.Option(help="A file that holds the key; `-` reads it from standard input.")
    ] = "",
    remove: Annotated[bool, typer.Option("--remove", help="Forget the provider and its key.")] = False,
    as_json: Json = False,
) -> None:
    """Connect a model provider; its key stays on this machine and is never given on the command line."""
    from lodger_cli.connect import connect as run

    run(provider, base_url=base_url, api_key_file=api_key_file, remove=remove, as_json=as_json)


@app.command()
def models(as_json: Json = False) -> None:
    """The models that can be used here, and where each comes from."""
    from lodger_cli.connect import models as run

    run(as_json=as_json)


@memory.command("status")
def memory_status(agent: Agent = "", as_json: Json = False) -> None:
    """The state of an agent's memory and of its last sync."""
    from lodger_cli.memory import status as run

    run(agent, as_json=as_json)


@memory.command("log")
def memory_log(
    agent: Agent = "",
    limit: Annotated[int, typer.Option(help="How many commits at the most.")] = 20,
    as_json: Json = False,
) -> None:
    """What the agent has remembered, newest first."""
    from lodger_cli.memory import log as run

    run(agent, limit=limit, as_json=as_json)


@sandbox.command("run", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def sandbox_run(
    context: typer.Context,
    explain: Annotated[bool, typer.Option("--explain", help="Print the policy in words, and run nothing.")] = False,
) -> None:
    """Run `-- CMD` in a box on the current folder, as an agent's command would; its exit code is ours."""
    from lodger_cli.sandbox import run

    run(context.args, explain=explain)


def main() -> None:
    """The entry point of the `lodger` command."""
    app()


if __name__ == "__main__":
    main()
