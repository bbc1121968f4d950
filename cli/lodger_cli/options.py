"""Options that several commands have."""

from typing import Annotated, Any

import typer

from lodger_cli.for_programs import ask_for_json


def _json(words: str) -> Any:
    """Read before all others, so that what is wrong with those is told as JSON too."""
    return typer.Option("--json", callback=ask_for_json, is_eager=True, help=words)


Json = Annotated[bool, _json("Print JSON for programs.")]
JsonFrames = Annotated[bool, _json("Print every frame as a line of JSON.")]
JsonRecords = Annotated[bool, _json("Print each record as a line of JSON.")]
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
SharedName = Annotated[
    str, typer.Option("--shared", metavar="NAME", help="Of a memory that the agent shares, not of its own.")
]
MemoryCommit = Annotated[str, typer.Option("--at", metavar="COMMIT", help="As of this commit; `main` is now.")]
Sure = Annotated[bool, typer.Option("--yes", help="Do not ask whether I am sure.")]
LogFile = Annotated[
    str, typer.Option("--log-file", metavar="FILE", help="Log there, with rotation, not to standard error.")
]
WhileFd = Annotated[int, typer.Option("--while-fd", hidden=True)]
