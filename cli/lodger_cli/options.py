"""Options that several commands have."""

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Agent = Annotated[str, typer.Option("--agent", metavar="ID", help="An agent's id; without it the first one.")]
Model = Annotated[
    str, typer.Option("--model", metavar="HANDLE", help="The agent's model from now on; `lodger models` lists them.")
]
Folder = Annotated[
    str,
    typer.Option("--cwd", metavar="FOLDER", help="Where this conversation works from now on; at first ~/lodger-work."),
]
Conversation = Annotated[
    str, typer.Option("--conversation", metavar="ID", help="A conversation's id, `default` or `new`.")
]
PermissionMode = Annotated[
    str,
    typer.Option(
        "--mode",
        metavar="MODE",
        help="How much this conversation asks from now on: strict, standard, acceptEdits or unrestricted.",
    ),
]
Lan = Annotated[bool, typer.Option("--lan", help="Also listen with TLS for phones in this network.")]
LanPort = Annotated[
    int,
    typer.Option(metavar="PORT", show_default=False, help="The port of --lan; without it the one behind --port."),
]
TlsCert = Annotated[
    str, typer.Option(metavar="FILE", help="A certificate chain in PEM; with --lan instead of one made here.")
]
TlsKey = Annotated[str, typer.Option(metavar="FILE", help="Its key in PEM.")]
PublicUrl = Annotated[str, typer.Option(metavar="URL", help="Where a proxy with a certificate shows this hub.")]
PublicName = Annotated[
    list[str], typer.Option(metavar="NAME", help="A host name under which the hub is reached; may be repeated.")
]
TrustedProxy = Annotated[
    list[str],
    typer.Option(
        metavar="NETWORK",
        help="With --public-url: a proxy on another machine, whose word on callers' addresses counts.",
    ),
]
SharedName = Annotated[
    str, typer.Option("--shared", metavar="NAME", help="Of a memory that the agent shares, not of its own.")
]
MemoryCommit = Annotated[str, typer.Option("--at", metavar="COMMIT", help="As of this commit; `main` is now.")]
LogFile = Annotated[
    str, typer.Option("--log-file", metavar="FILE", help="Log there, with rotation, not to standard error.")
]
WhileFd = Annotated[int, typer.Option("--while-fd", hidden=True)]
