"""What a model is told of the tools: short, and the same bytes every time. Pure."""

from typing import Final

from lodger_tools.catalogue.background_tasks import OUTPUT_TOOL, STOP_TOOL
from lodger_tools.catalogue.exec_sessions import EXEC_TOOL, INPUT_TOOL
from lodger_tools.catalogue.person_questions import ASK_TOOL, QUESTIONS_LIMIT
from lodger_tools.json_value import Json, JsonObject
from lodger_tools.permissions.core.reach import FOLDER_ARGUMENT
from lodger_tools.toolbox_contract import Scheduling, ToolDescription


def parameters(properties: dict[str, Json], required: tuple[str, ...]) -> JsonObject:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def text(description: str) -> JsonObject:
    return {"type": "string", "description": description}


def number(description: str) -> JsonObject:
    return {"type": "integer", "description": description}


def flag(description: str) -> JsonObject:
    return {"type": "boolean", "description": description}


BASH: Final = ToolDescription(
    name="Bash",
    description=(
        "Run a shell command with bash in the working folder and return its output, standard output and error as they"
        " came. Each call is a shell of its own: variables and `cd` do not last. Standard input is empty. Use Read,"
        " Write, Edit, Glob and Grep for files. With run_in_background you get an id at once, and are told when it has"
        " ended; a command that takes long goes on in the background by itself. Long output is cut in the middle, and a"
        " file with the whole is named."
    ),
    parameters=parameters(
        {
            "command": text("The command line."),
            "description": text("What it does, in five to ten words, for the person who watches."),
            "timeout": number("Milliseconds after which it is ended."),
            "run_in_background": flag("Do not wait for it: for servers, builds and whatever else takes long."),
            FOLDER_ARGUMENT: text(
                "Only to work outside the working folder: the one folder the command needs. The person is asked."
            ),
        },
        ("command",),
    ),
    scheduling=Scheduling.BARRIER,
)
READ: Final = ToolDescription(
    name="Read",
    description=(
        "Read a text file. Lines come as their number, a tab and the text; the number is not part of the file. Up to"
        " 2000 lines a call; a long file says where to go on."
    ),
    parameters=parameters(
        {
            "file_path": text("Absolute, or relative to the working folder."),
            "offset": number("The first line wanted, counted from 1."),
            "limit": number("How many lines; 2000 if not given."),
        },
        ("file_path",),
    ),
    scheduling=Scheduling.PARALLEL,
    only_reads=True,
)
WRITE: Final = ToolDescription(
    name="Write",
    description=(
        "Give a file its whole content; folders that are missing are made. To change a part of a file use Edit. Refused"
        " when the file has changed since you read it."
    ),
    parameters=parameters(
        {
            "file_path": text("Absolute, or relative to the working folder."),
            "content": text("All of the file's new content."),
        },
        ("file_path", "content"),
    ),
    scheduling=Scheduling.BARRIER,
)
EDIT: Final = ToolDescription(
    name="Edit",
    description=(
        "Replace a text in a file by another. The old text must stand there exactly, and only once unless replace_all"
        " is set; give enough of what stands around it. Leave out the line numbers that Read shows. Refused when the"
        " file has changed since you read it."
    ),
    parameters=parameters(
        {
            "file_path": text("Absolute, or relative to the working folder."),
            "old_string": text("The text to replace."),
            "new_string": text("What stands there afterwards."),
            "replace_all": flag("Replace every occurrence."),
            "expected_replacements": number("How many occurrences there must be."),
        },
        ("file_path", "old_string", "new_string"),
    ),
    scheduling=Scheduling.BARRIER,
)
GLOB: Final = ToolDescription(
    name="Glob",
    description=(
        "Find files by name, the newest first, hidden ones included. `**/` stands for any folders, `*` and `?` for a"
        " part of a name, `{a,b}` for either. Up to 2000 paths."
    ),
    parameters=parameters(
        {
            "pattern": text("For example `**/*.py` or `src/*.{ts,tsx}`."),
            "path": text("The folder to look in; the working folder if not given."),
        },
        ("pattern",),
    ),
    scheduling=Scheduling.PARALLEL,
    only_reads=True,
)
GREP: Final = ToolDescription(
    name="Grep",
    description=(
        "Search file contents by a regular expression (ripgrep's dialect). Ignored files (.gitignore) are left out."
    ),
    parameters=parameters(
        {
            "pattern": text("The regular expression."),
            "path": text("A file or folder; the working folder if not given."),
            "glob": text("Only files whose names match, for example `*.py`."),
            "output_mode": {
                "type": "string",
                "enum": ["content", "files_with_matches", "count"],
                "description": "Matching lines, paths (if not given), or how many lines match in each file.",
            },
            "-A": number("Lines to show after each match."),
            "-B": number("Lines to show before each match."),
            "-C": number("Lines to show before and after each match."),
            "-n": flag("Show line numbers; true if not given."),
            "-i": flag("Ignore case."),
            "type": text("Only files of this type, for example `py` or `rust`."),
            "head_limit": number("At most so many entries; 100 if not given, 0 for all."),
            "offset": number("Skip so many entries."),
            "multiline": flag("Let a match span lines."),
        },
        ("pattern",),
    ),
    scheduling=Scheduling.PARALLEL,
    only_reads=True,
)
ASK: Final = ToolDescription(
    name=ASK_TOOL,
    description=(
        "Ask the person who uses you, when only they can decide and you cannot go on well without it. Offer options"
        " where you can; they may always answer in their own words."
    ),
    parameters=parameters(
        {
            "questions": {
                "type": "array",
                "description": f"1 to {QUESTIONS_LIMIT} questions, shown together.",
                "items": parameters(
                    {
                        "question": text("The question, whole and clear."),
                        "header": text("What it is about, in one or two words."),
                        "options": {
                            "type": "array",
                            "description": "What may be chosen.",
                            "items": parameters(
                                {"label": text("The choice, in few words."), "description": text("What it means.")},
                                ("label",),
                            ),
                        },
                        "multiSelect": flag("More than one may be chosen."),
                    },
                    ("question",),
                ),
            },
        },
        ("questions",),
    ),
    scheduling=Scheduling.PARALLEL,
)
TASK_OUTPUT: Final = ToolDescription(
    name=OUTPUT_TOOL,
    description=(
        "See how a background task stands and what it has written. You are told of its end without asking; use this to"
        " look in between, or to wait when you cannot go on without it."
    ),
    parameters=parameters(
        {
            "task_id": text("The id you were given, such as bash_7."),
            "block": flag("Wait for its end; true if not given."),
            "timeout": number("Milliseconds to wait at most; 30000 if not given, at most 600000."),
            "offset": number("Read on from this byte of its output; the last of it if not given."),
        },
        ("task_id",),
    ),
    scheduling=Scheduling.PARALLEL,
)
TASK_STOP: Final = ToolDescription(
    name=STOP_TOOL,
    description="End a background task: its processes are asked to stop, and killed two seconds later.",
    parameters=parameters({"task_id": text("The id you were given, such as bash_7.")}, ("task_id",)),
    scheduling=Scheduling.BARRIER,
)
EXEC: Final = ToolDescription(
    name=EXEC_TOOL,
    description=(
        "Run a shell command in the working folder. One that has not ended after yield_time_ms goes on as a session:"
        f" {INPUT_TOOL} types into it and shows what it has written since."
    ),
    parameters=parameters(
        {
            "cmd": text("The command line."),
            "description": text("What it does, in five to ten words, for the person who watches."),
            "workdir": text("The folder to run it in; the working folder if not given."),
            "tty": flag("Give it a terminal."),
            "login": flag("Use a login shell; true if not given."),
            "yield_time_ms": number("How long to wait for its end; 10000 if not given, 250 to 30000."),
            "max_output_tokens": number("How much of its output to return; 10000 if not given."),
        },
        ("cmd",),
    ),
    scheduling=Scheduling.BARRIER,
)
INPUT: Final = ToolDescription(
    name=INPUT_TOOL,
    description="Type into a session, or only look at it, and see what it has written since.",
    parameters=parameters(
        {
            "session_id": number("The number you were given."),
            "chars": text("What to type, line ends included; nothing to only look."),
            "yield_time_ms": number("How long to wait; 250 if not given, 5000 to only look."),
            "max_output_tokens": number("How much of its output to return; 10000 if not given."),
        },
        ("session_id",),
    ),
    scheduling=Scheduling.BARRIER,
)
SESSION_TOOLS: Final = (EXEC, INPUT)
"""For models of the codex family: had by naming them."""
TOOLS: Final = (BASH, READ, WRITE, EDIT, GLOB, GREP, ASK, TASK_OUTPUT, TASK_STOP)
