"""The practice model's whole mind: rules over the newest message. The same request always gets the same answer.

It exists so that a person can try Lodger, and see every tool work, before connecting a real model. It says what it is.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lodger_daemon.models.core.json_fields import as_list, as_object, as_text
from lodger_tools.json_value import Json, JsonObject

_SHOWN_RESULT_CHARS: Final = 4000
_REMEMBERED: Final = "practice model: remembered"
_REMINDER: Final = re.compile(r"<(reminder|system-reminder)\b[^>]*>.*?</\1>", re.DOTALL)
_MEMORY_FILE: Final = re.compile(r"<memory_file[^>]*>\n(.*?)\n</memory_file>", re.DOTALL)
_MEMORY: Final = re.compile(r"<memory>\n(.*)\n</memory>", re.DOTALL)

HELP: Final = """\
I am the practice model: a small set of rules that runs offline on this computer. I do not understand language; I let \
you try what Lodger can do before you connect a real model (`lodger connect`). I know these requests:

- run `COMMAND`
- read FILE
- write FILE with TEXT
- edit FILE: replace OLD with NEW
- find files PATTERN
- search for TEXT
- remember that FACT
- what do you know about TOPIC
- call TOOL {"argument": "value"}"""


@dataclass(frozen=True, slots=True)
class Say:
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: JsonObject


Reply = Say | Call


def reply(messages: list[Json], tools: list[Json]) -> Reply:
    """What to answer to the messages of a chat completion."""
    turns = [as_object(message) for message in messages]
    offered = {as_text(as_object(as_object(tool).get("function")).get("name")) for tool in tools}
    if not turns:
        return Say(HELP)
    last_user = max((i for i, turn in enumerate(turns) if turn.get("role") == "user"), default=-1)
    request = _words(turns[last_user].get("content")) if last_user >= 0 else ""
    results = [turn for turn in turns[last_user + 1 :] if turn.get("role") == "tool"]
    if results:
        return _report(request, results)
    return _answer(request, _memory_of(turns), offered)


def _words(content: Json) -> str:
    if isinstance(content, str):
        text = content
    else:
        text = "\n\n".join(as_text(as_object(part).get("text")) for part in as_list(content))
    return _REMINDER.sub("", text).strip()


@dataclass(frozen=True, slots=True)
class _Memory:
    text: str
    is_older: bool
    """Of the layout whose core files stand below system/ and bear no name."""


def _memory_of(turns: list[JsonObject]) -> _Memory:
    """What is known: the memory in the system prompt, and facts this conversation was told since it was compiled."""
    system = "\n\n".join(_plain(turn.get("content")) for turn in turns if turn.get("role") == "system")
    found = _MEMORY.search(system)
    memory = found.group(1) if found else ""
    files = _MEMORY_FILE.findall(memory)
    told = [_fact(_words(turn.get("content"))) for turn in turns if turn.get("role") == "user"]
    is_older = '<memory_file path="system/' in memory and '<memory_file path="MEMORY.md"' not in memory
    return _Memory("\n".join([*(files or [memory]), *told]), is_older)


def _plain(content: Json) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join(as_text(as_object(part).get("text")) for part in as_list(content))


def _report(request: str, results: list[JsonObject]) -> Reply:
    texts = [_plain(result.get("content")).strip() for result in results]
    shown = "\n\n".join(text if text else "(no output)" for text in texts)
    if len(shown) > _SHOWN_RESULT_CHARS:
        shown = shown[:_SHOWN_RESULT_CHARS] + "\n… (the rest is not shown)"
    if _REMEMBER.match(request) and _REMEMBERED in shown:
        return Say(f"I have written that to my memory and committed it: {_fact(request)}")
    return Say(f"Done. The result was:\n\n{shown}")


def _answer(request: str, memory: _Memory, offered: set[str]) -> Reply:
    for pattern, rule in _RULES:
        if match := pattern.match(request):
            answer = rule(match, memory)
            if isinstance(answer, Call) and answer.name not in offered:
                return Say(f"I would call the tool {answer.name} for that, but it is not among my tools here.")
            return answer
    lowered = request.lower()
    if not request or _ABOUT_ITSELF.search(lowered):
        return Say(HELP)
    short = request if len(request) <= 200 else request[:200] + "…"
    return Say(f"I am the practice model and have no rule for “{short}”. Say “help” to see what I can do.")


def _run(match: re.Match[str], _memory: _Memory) -> Reply:
    command = match["ticked"] or match["plain"]
    return Call("Bash", {"command": command.strip(), "description": "Run what was asked for"})


def _read(match: re.Match[str], _memory: _Memory) -> Reply:
    return Call("Read", {"file_path": _unquote(match["path"])})


def _write(match: re.Match[str], _memory: _Memory) -> Reply:
    text = _unquote(match["text"])
    return Call("Write", {"file_path": _unquote(match["path"]), "content": text + "\n"})


def _edit(match: re.Match[str], _memory: _Memory) -> Reply:
    old, new = _unquote(match["old"]), _unquote(match["new"])
    return Call("Edit", {"file_path": _unquote(match["path"]), "old_string": old, "new_string": new})


def _find(match: re.Match[str], _memory: _Memory) -> Reply:
    return Call("Glob", {"pattern": _unquote(match["pattern"])})


def _search(match: re.Match[str], _memory: _Memory) -> Reply:
    return Call("Grep", {"pattern": _unquote(match["text"]), "output_mode": "content"})


def _call(match: re.Match[str], _memory: _Memory) -> Reply:
    try:
        arguments = json.loads(match["arguments"] or "{}")
    except ValueError:
        return Say("The arguments after the tool's name must be one JSON object.")
    return Call(match["tool"], arguments) if isinstance(arguments, dict) else Say("Arguments must be a JSON object.")


def _remember(match: re.Match[str], memory: _Memory) -> Reply:
    fact = match["fact"].strip()
    name = "fact-" + ("-".join(re.findall(r"[a-z0-9]+", fact.lower())[:6])[:60] or "note")
    title = " ".join(fact.split())[:80]
    # A colon or a number sign before a space would mean something in the front matter.
    described = re.sub(r"[:#](?=\s|$)", "", title)
    file, named = (f"system/{name}.md", "") if memory.is_older else (f"{name}.md", f"name: {name}\n")
    page = f"---\n{named}description: Remembered that {described}\n---\n\n{fact}\n"
    # The fact travels quoted for the shell: it is data, whatever it holds.
    command = (
        f'cd "$MEMORY_DIR" && printf %s {_quote(page)} > {file} && git add {file}'
        f" && {{ git diff --cached --quiet || git commit --quiet -m {_quote('Remember: ' + title)}; }}"
        f" && echo '{_REMEMBERED}'"
    )
    return Call("Bash", {"command": command, "description": "Write a fact to memory and commit it"})


def _recall(match: re.Match[str], memory: _Memory) -> Reply:
    topic = set(re.findall(r"\w+", match["topic"].lower())) - _COMMON
    lines = [line.strip() for line in memory.text.splitlines() if line.strip() and line.strip() != "---"]
    facts = [line for line in lines if not re.match(r"(#|<|Your memory is )", line)]
    hits = [line for line in facts if not topic or topic & set(re.findall(r"\w+", line.lower()))]
    if hits:
        return Say("From my memory: " + " ".join(dict.fromkeys(hits)))
    return Say(f"My memory holds nothing about {match['topic'].strip()}.")


def _fact(request: str) -> str:
    match = _REMEMBER.match(request)
    return match["fact"].strip() if match else ""


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\"'\"'") + "'"


def _unquote(text: str) -> str:
    text = text.strip()
    for mark in "`\"'":
        if len(text) >= 2 and text[0] == mark == text[-1]:
            return text[1:-1]
    return text


_COMMON: Final = frozenset(
    {"a", "about", "an", "and", "are", "do", "for", "i", "in", "is", "it", "me", "my", "of", "on", "our", "that", "the"}
    | {"to", "we", "what", "you", "your"}
)
_ABOUT_ITSELF: Final = re.compile(r"\b(who|what) are you\b|\bwhat can (you|i) do\b|\bhelp\b|^(hi|hello|hey)\b")
_FLAGS: Final = re.IGNORECASE | re.DOTALL
_PLEASE: Final = r"\s*(?:please\s+)?"
_REMEMBER: Final = re.compile(_PLEASE + r"remember(?:\s+that)?[\s:]+(?P<fact>.+)", _FLAGS)

_Rule = Callable[[re.Match[str], _Memory], Reply]

_RULES: Final[tuple[tuple[re.Pattern[str], _Rule], ...]] = (
    (_REMEMBER, _remember),
    (
        re.compile(
            _PLEASE + r"(?:what do you (?:know|remember)(?: about)?|recall|what is|what's|which|where is|who is)\s+"
            r"(?P<topic>(?!are you|you\b).+?)\??\s*$",
            _FLAGS,
        ),
        _recall,
    ),
    (re.compile(_PLEASE + r"(?:run|execute)\s+(?:`(?P<ticked>[^`]+)`.*|(?P<plain>.+))$", _FLAGS), _run),
    (re.compile(_PLEASE + r"(?:read|show)\s+(?:the\s+file\s+)?(?P<path>.+)$", _FLAGS), _read),
    (re.compile(_PLEASE + r"write\s+(?P<path>\S+)\s+with\s+(?P<text>.+)$", _FLAGS), _write),
    (re.compile(_PLEASE + r"edit\s+(?P<path>\S+?):?\s+replace\s+(?P<old>.+?)\s+with\s+(?P<new>.+)$", _FLAGS), _edit),
    (re.compile(_PLEASE + r"(?:find|list)\s+files\s+(?P<pattern>\S+)\s*$", _FLAGS), _find),
    (re.compile(_PLEASE + r"(?:search|grep)\s+(?:for\s+)?(?P<text>.+)$", _FLAGS), _search),
    (re.compile(_PLEASE + r"call\s+(?P<tool>\w+)\s*(?P<arguments>\{.*\})?\s*$", _FLAGS), _call),
)
