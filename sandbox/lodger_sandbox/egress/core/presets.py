"""Hosts that a person's own tools name in their configuration, so that nobody has to list them. No host stands here."""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

from lodger_sandbox.egress.core.allow import Entry, entry_for
from lodger_sandbox.egress.core.hosts import BadHost, Destination, parse_host

_PORTS: Final = {"http": 80, "https": 443, "ssh": 22, "git": 9418}
_PIP_LINE: Final = re.compile(r"[^=]*\.(?:index-url|extra-index-url|find-links)='(.*)'")
_PIP_INDEX: Final = re.compile(r"[^=]*\.index-url=")
_CARGO_INDEX: Final = re.compile(rb"sparse\+(https://[A-Za-z0-9.-]+/)")
HOSTS_LIMIT: Final = 100
"""Of one tool: more is no configuration that a person wrote."""


class Preset(StrEnum):
    PIP = "pip"
    NPM = "npm"
    CARGO = "cargo"
    GIT = "git"


def entries_of(urls: Iterable[str]) -> tuple[Entry, ...]:
    """What lets these be reached: exactly their hosts and ports. What is no address on a network is passed over."""
    found = (destination_of(url) for url in urls)
    return tuple(dict.fromkeys(entry_for(to) for to in found if to is not None))[:HOSTS_LIMIT]


def destination_of(url: str) -> Destination | None:
    try:
        parts = urlsplit(url.removeprefix("sparse+").removeprefix("registry+"))
        port = parts.port or _PORTS.get(parts.scheme)
        return None if port is None or not parts.hostname else Destination(parse_host(parts.hostname), port)
    except (BadHost, ValueError):
        return None


def pip_names_index(listed: str) -> bool:
    """Whether `pip config list` names an index, which then takes the place of the program's own."""
    return any(_PIP_INDEX.match(line) for line in listed.splitlines())


def pip_urls(listed: str) -> tuple[str, ...]:
    """From the output of `pip config list`."""
    lines = (_PIP_LINE.fullmatch(line) for line in listed.splitlines())
    # Several values of one key stand in one text, with spaces or written line breaks between.
    return tuple(url for line in lines if line for url in line[1].replace("\\n", " ").split())


def npm_urls(listed: str) -> tuple[str, ...]:
    """From the output of `npm config list --json`. Raises: ValueError."""
    options = json.loads(listed)
    if not isinstance(options, dict):
        raise ValueError("npm's configuration is no object")
    return tuple(url for name, url in options.items() if isinstance(url, str) and name.rpartition(":")[2] == "registry")


def git_urls(names: str) -> tuple[str, ...]:
    """From the names of the person's options, NUL between: addresses with a credential, options or a rewriting."""
    sections = (name.partition(".")[2].rpartition(".")[0] for name in names.split("\0") if name)
    return tuple(section for section in sections if "://" in section)


def cargo_urls(config: str) -> tuple[str, ...]:
    """From `config.toml`: registries and sources. Raises: ValueError."""
    return tuple(_texts(tomllib.loads(config), frozenset({"registries", "registry", "source"})))


def cargo_index_urls(config: str) -> tuple[str, ...]:
    """From the `config.json` of an index that was used before: where its packages lie. Raises: ValueError."""
    value = json.loads(config)
    return tuple(_texts({"registry": value}, frozenset({"registry"})))


def cargo_program_urls(program: bytes) -> tuple[str, ...]:
    """The index that the program itself has."""
    return tuple(dict.fromkeys(url.decode() for url in _CARGO_INDEX.findall(program)))


def _texts(tables: dict[str, object], only: frozenset[str]) -> Iterator[str]:
    waiting = [value for name, value in tables.items() if name in only]
    while waiting:
        match waiting.pop():
            case str() as text if "://" in text:
                yield text
            case dict() as table:
                waiting += table.values()
            case _:
                pass
