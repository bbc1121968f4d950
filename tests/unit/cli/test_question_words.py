"""What Lodger asks about by itself is asked in words, in the terminal and on the page, and it is shown whole."""

from pathlib import Path

import pytest

from lodger_cli.questions import ask_person
from lodger_cli.wire import Frame
from lodger_daemon.turns.core.own_questions import OwnQuestion

PAGE_WORDS = Path(__file__).parents[3] / "hub/web/src/chat/choices.ts"
INPUTS: dict[str, Frame] = {
    OwnQuestion.SPEND: {"scope": "turn"},
    OwnQuestion.HOSTS: {"hosts": ["example.org:443", "[2600::1]:22"]},
    OwnQuestion.PORTS: {"ports": [5173, 8080], "workspace": "/home/me/site"},
    OwnQuestion.GIT: {"workspace": "/home/me/site", "settings": {"core.hookspath": ".husky", "core.fsmonitor": ""}},
}
SHOWN = {
    OwnQuestion.SPEND: ["A limit of spending is reached. Go on?", "  (why)"],
    OwnQuestion.HOSTS: [
        "May programs of the agent reach these 2 hosts?",
        "  (why)",
        "    example.org:443",
        "    [2600::1]:22",
    ],
    OwnQuestion.PORTS: [
        "May the machine reach these 2 ports of the agent's box?",
        "  (why)",
        "    port 5173 in /home/me/site",
        "    port 8080 in /home/me/site",
    ],
    OwnQuestion.GIT: [
        "May the agent's change of git's configuration stand?",
        "  (why)",
        "    /home/me/site/.git/config",
        "    +core.hookspath = .husky",
        "    -core.fsmonitor",
    ],
}


async def asked(capsys: pytest.CaptureFixture[str], tool_name: str, arguments: object, key: str = "y") -> list[str]:
    """The lines a person sees."""

    async def read(prompt: str) -> str:
        return f"{key}\n"

    request = {"tool_name": tool_name, "input": arguments, "reason": "why"}
    answer = await ask_person({"request": request}, read)
    assert answer["decision"]["behavior"] == {"y": "allow", "n": "deny"}[key]
    return capsys.readouterr().err.strip("\n").splitlines()


@pytest.mark.parametrize("kind", OwnQuestion)
async def test_each_kind_has_words_of_its_own(capsys: pytest.CaptureFixture[str], kind: OwnQuestion) -> None:
    assert await asked(capsys, kind, INPUTS[kind], "n") == SHOWN[kind]


@pytest.mark.parametrize("kind", OwnQuestion)
def test_the_page_knows_each_kind_too(kind: OwnQuestion) -> None:
    assert f'_TOOL = "{kind}";' in PAGE_WORDS.read_text()


async def test_one_thing_is_named_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    [title, *_] = await asked(capsys, OwnQuestion.PORTS, {"ports": [5173], "workspace": "/w"})
    assert title == "May the machine reach port 5173 of the agent's box?"
    [title, *_] = await asked(capsys, OwnQuestion.HOSTS, {"hosts": ["example.org:443"]})
    assert title == "May programs of the agent reach this host?"


@pytest.mark.parametrize("kind", [OwnQuestion.HOSTS, OwnQuestion.PORTS, OwnQuestion.GIT])
@pytest.mark.parametrize("arguments", [None, [], {}, {"hosts": "x", "ports": 7, "settings": []}, {"hosts": [], "a": 1},
     {"hosts": ["a.test:1", 7], "ports": [5173, "8080"], "settings": {"core.pager": ["less"]}}])  # fmt: skip
async def test_what_cannot_be_put_in_words_is_shown_as_it_came(
    capsys: pytest.CaptureFixture[str], kind: OwnQuestion, arguments: object
) -> None:
    lines = await asked(capsys, kind, arguments)
    assert lines[0] == f"The agent asks to use {kind}:"


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (OwnQuestion.HOSTS, {"hosts": ["a.test:1", "\x1b[2Jb.test:2\u202e"]}),
        (OwnQuestion.PORTS, {"ports": [5173], "workspace": "/w\x1b[2J\u202e"}),
        (OwnQuestion.GIT, {"workspace": "/w\x1b[2J", "settings": {"core.pager\u202e": "\x1b[2Jless"}}),
    ],
)
async def test_nothing_in_it_looks_like_something_else(
    capsys: pytest.CaptureFixture[str], kind: OwnQuestion, arguments: Frame
) -> None:
    text = "\n".join(await asked(capsys, kind, arguments))
    assert not set(text) & {"\x1b", "\u202e"}
    assert "\\u{1b}[2J" in text and "\\u{202e}" in text
