"""`agent.toml`: what travels with a memory. No rules, no endpoints, no secrets."""

import json
import tomllib
from dataclasses import dataclass
from typing import Final

AGENT_TOML: Final = "agent.toml"
_MAX_BYTES: Final = 16 * 1024
_TEXT_LIMITS: Final = {"name": 200, "description": 2000, "model": 200, "toolset": 100}


@dataclass(frozen=True, slots=True)
class AgentFile:
    """A valid `agent.toml`."""

    name: str
    description: str = ""
    model: str | None = None
    toolset: str | None = None
    read_only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BadAgentFile:
    """What is wrong with an `agent.toml`, one text each."""

    faults: tuple[str, ...]


def read_agent_toml(data: bytes) -> AgentFile | BadAgentFile:
    if len(data) > _MAX_BYTES:
        return BadAgentFile((f"longer than {_MAX_BYTES} bytes",))
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        return BadAgentFile((f"not TOML: {str(error)[:120]}",))
    faults = [f"unknown key {key[:40]!r}; only name, description, model, toolset and read_only may stand here"
              for key in table if key not in _TEXT_LIMITS and key != "read_only"]  # fmt: skip
    for key, limit in _TEXT_LIMITS.items():
        value = table.get(key, "")
        if not isinstance(value, str) or len(value) > limit:
            faults.append(f"{key} must be a text of at most {limit} characters")
        elif any(not char.isprintable() and char != "\n" for char in value):
            faults.append(f"{key} has a control character")
    if not table.get("name"):
        faults.append("name is missing")
    read_only = table.get("read_only", [])
    if not isinstance(read_only, list) or not all(_is_path(path) for path in read_only):
        faults.append("read_only must be a list of relative paths")
    if faults:
        return BadAgentFile(tuple(faults))
    return AgentFile(
        table["name"], table.get("description", ""), table.get("model"), table.get("toolset"), tuple(read_only)
    )


def write_agent_toml(agent: AgentFile) -> bytes:
    """The file for these values; `read_agent_toml` gives them back."""
    lines = [f"name = {_quoted(agent.name)}", f"description = {_quoted(agent.description)}"]
    lines += [f"{key} = {_quoted(value)}" for key, value in (("model", agent.model), ("toolset", agent.toolset))
              if value is not None]  # fmt: skip
    if agent.read_only:
        lines.append("read_only = [" + ", ".join(_quoted(path) for path in agent.read_only) + "]")
    return ("\n".join(lines) + "\n").encode()


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _is_path(value: object) -> bool:
    return (
        isinstance(value, str)
        and 0 < len(value) <= 512
        and not value.startswith("/")
        and all(part not in {"", ".", ".."} for part in value.rstrip("/").split("/"))
    )
