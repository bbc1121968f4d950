"""What Lodger itself asks about, in words of its own: these questions name no tool."""

from collections.abc import Callable
from typing import Final

from lodger_cli.terminal import GREEN, RED, paint, unmasked
from lodger_cli.wire import Frame
from lodger_daemon.turns.core.own_questions import OwnQuestion


def title(request: Frame) -> str | None:
    """What is asked, in a line; None when it is about a call of a tool, or says nothing that can be put in words."""
    words = _TITLES.get(str(request["tool_name"]))
    return None if words is None else words(_input(request))


def body(request: Frame, colours: bool) -> list[str]:
    """What the title does not say, a line for each thing that would be allowed."""
    arguments = _input(request)
    match request["tool_name"]:
        case OwnQuestion.HOSTS:
            return _texts(arguments.get("hosts"))
        case OwnQuestion.PORTS:
            return [f"port {port} in {unmasked(str(arguments.get('workspace', '')))}" for port in _ports(arguments)]
        case OwnQuestion.GIT:
            file = f"{unmasked(str(arguments.get('workspace', '')))}/.git/config"
            return [file, *(_setting(name, value, colours) for name, value in _settings(arguments).items())]
        case _:
            return []


def _hosts_title(arguments: Frame) -> str | None:
    hosts = _texts(arguments.get("hosts"))
    what = "this host" if len(hosts) == 1 else f"these {len(hosts)} hosts"
    return f"May programs of the agent reach {what}?" if hosts else None


def _ports_title(arguments: Frame) -> str | None:
    ports = _ports(arguments)
    what = f"port {ports[0]}" if len(ports) == 1 else f"these {len(ports)} ports"
    return f"May the machine reach {what} of the agent's box?" if ports else None


def _git_title(arguments: Frame) -> str | None:
    return "May the agent's change of git's configuration stand?" if _settings(arguments) else None


_TITLES: Final[dict[str, Callable[[Frame], str | None]]] = {
    OwnQuestion.SPEND: lambda arguments: "A limit of spending is reached. Go on?",
    OwnQuestion.HOSTS: _hosts_title,
    OwnQuestion.PORTS: _ports_title,
    OwnQuestion.GIT: _git_title,
}


def _input(request: Frame) -> Frame:
    arguments = request.get("input")
    return arguments if isinstance(arguments, dict) else {}


def _texts(value: object) -> list[str]:
    """None of them unless all can be read: what is allowed is shown whole."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        return []
    return [unmasked(one) for one in value]


def _ports(arguments: Frame) -> list[int]:
    value = arguments.get("ports")
    return value if isinstance(value, list) and all(type(port) is int for port in value) else []


def _settings(arguments: Frame) -> dict[str, str]:
    """By name; a setting without a value would be gone."""
    value = arguments.get("settings")
    return value if isinstance(value, dict) and all(isinstance(text, str) for text in value.values()) else {}


def _setting(name: str, value: str, colours: bool) -> str:
    line, colour = (f"+{name} = {value}", GREEN) if value else (f"-{name}", RED)
    return paint(unmasked(line), colour, colours)
