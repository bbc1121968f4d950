"""Which device may use which memory: `grants.toml` beside the hub's store, written by the person who runs the hub.

A device that is not named there may use every memory, as may all where there is no such file. A file that cannot be
understood lets nobody in: what it was meant to hold back is not known.
"""

import logging
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

FILE_NAME: Final = "grants.toml"
_MAX_BYTES: Final = 1024 * 1024
_EVERY: Final = "*"
_log = logging.getLogger(__name__)


class Right(StrEnum):
    NONE = "none"
    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class DeviceGrant:
    """The agents a device may use; what it may write it may read."""

    read: frozenset[str]
    write: frozenset[str]

    def right(self, agent_id: str) -> Right:
        if self.write & {agent_id, _EVERY}:
            return Right.WRITE
        return Right.READ if self.read & {agent_id, _EVERY} else Right.NONE


class BadGrants(ValueError):
    """The file is not understood; the text says what is wrong."""


def parse_grants(data: bytes) -> Mapping[str, DeviceGrant]:
    """By device id. Raises: BadGrants."""
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadGrants(f"no TOML: {str(error)[:200]}") from None
    devices = table.get("devices", {})
    if set(table) - {"devices"} or not isinstance(devices, dict):
        raise BadGrants('only tables [devices."ID"] may stand there')
    return {device_id: _grant(device_id, entry) for device_id, entry in devices.items()}


def _grant(device_id: str, entry: object) -> DeviceGrant:
    if not isinstance(entry, dict) or set(entry) - {"read", "write"}:
        raise BadGrants(f"{device_id[:60]}: only read and write may stand there")
    lists = {key: entry.get(key, []) for key in ("read", "write")}
    for key, agents in lists.items():
        if not isinstance(agents, list) or not all(isinstance(agent, str) and agent for agent in agents):
            raise BadGrants(f'{device_id[:60]}: {key} must be a list of agent ids, or ["*"]')
    return DeviceGrant(frozenset(lists["read"]), frozenset(lists["write"]))


class Grants:
    """The file as it is now: a change counts from the next request. Blocking; a millisecond."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: tuple[bytes, Mapping[str, DeviceGrant] | None] = (b"", {})
        """The file's last content and what it says; None when it is not understood."""

    def right(self, device_id: str, agent_id: str) -> Right:
        devices = self._read()
        if devices is None:
            return Right.NONE
        grant = devices.get(device_id)
        return Right.WRITE if grant is None else grant.right(agent_id)

    def _read(self) -> Mapping[str, DeviceGrant] | None:
        try:
            with self._file.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            return {}
        except OSError as error:
            _log.error("%s cannot be read, so no memory is served: %s", self._file, error)
            return None
        if data != self._known[0]:
            self._known = (data, self._understood(data))
        return self._known[1]

    def _understood(self, data: bytes) -> Mapping[str, DeviceGrant] | None:
        try:
            if len(data) > _MAX_BYTES:
                raise BadGrants("it is larger than a megabyte")
            return parse_grants(data)
        except BadGrants as error:
            _log.error("%s is not understood, so no memory is served: %s", self._file, error)
            return None
