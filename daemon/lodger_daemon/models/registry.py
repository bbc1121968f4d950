"""Which providers this machine has: the settings', those stored by `connect`, the environment's, those found."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from lodger_daemon.durable_files import write_durably
from lodger_daemon.models.core.json_fields import as_object, parse_object
from lodger_daemon.models.core.providers import (
    COMPATIBLE,
    KNOWN,
    LITELLM_PREFIX,
    Dialect,
    Provider,
    provider_from_environment,
    provider_from_settings,
)
from lodger_tools.json_value import JsonObject

PRACTICE: Final = "practice"
PRACTICE_MODEL: Final = "practice"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_FILE_LIMIT_BYTES: Final = 1024 * 1024


class Registry:
    """Providers by name. Settings win over what was connected, that over the environment, that over found servers.

    Args:
        file: where `connect` keeps addresses; no key is ever in it.
    """

    def __init__(
        self, settings: Mapping[str, Mapping[str, object]], environment: Mapping[str, str], file: Path
    ) -> None:
        """Raises: ValueError for settings that name no usable provider, in words for the person."""
        self._of_environment = _all_from_environment(environment)
        self._file = file
        self._settings = {name: provider_from_settings(check_name(name), fields) for name, fields in settings.items()}
        self._stored = _read(file)
        self._found: dict[str, Provider] = {}

    def all(self) -> dict[str, Provider]:
        """In the order in which a default is looked for; the practice model is not among them."""
        merged = dict(self._settings)
        for name, fields in self._stored.items():
            if name not in merged and (provider := _from_stored(name, fields)):
                merged[name] = provider
        for name, provider in (*self._of_environment.items(), *self._found.items()):
            merged.setdefault(name, provider)
        return merged

    def get(self, name: str) -> Provider | None:
        """Also `litellm:NAME`, which asks for litellm whatever the provider."""
        if name.startswith(LITELLM_PREFIX):
            plain = name.removeprefix(LITELLM_PREFIX)
            known = self.all().get(plain)
            variables = KNOWN[plain].key_variables if plain in KNOWN else ()
            url = known.base_url if known else ""
            return Provider(name, url, Dialect.LITELLM, key_variables=variables)
        return self.all().get(name)

    def set_found(self, found: Mapping[str, str]) -> None:
        """Replace the servers found on this machine: name to base address."""
        self._found = {name: Provider(name, url, Dialect.OPENAI, source="found") for name, url in found.items()}

    def store(self, name: str, fields: Mapping[str, str]) -> Provider:
        """Keep a connected provider. Blocks. Raises: ValueError."""
        kept: JsonObject = {key: fields[key] for key in ("base_url", "dialect") if fields.get(key)}
        if models := [model.strip() for model in fields.get("models", "").split(",") if model.strip()]:
            kept["models"] = list(models)
        provider = provider_from_settings(check_name(name), dict(kept))
        self._stored = {**self._stored, name: kept}
        self._write()
        return provider

    def drop(self, name: str) -> bool:
        """Blocks."""
        if name not in self._stored:
            return False
        self._stored = {other: fields for other, fields in self._stored.items() if other != name}
        self._write()
        return True

    def _write(self) -> None:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(self._file, json.dumps(self._stored, indent=1) + "\n")


def check_name(name: str) -> str:
    """Raises: ValueError."""
    if not _NAME.fullmatch(name) or name == PRACTICE:
        raise ValueError(
            f"{name!r} cannot be a provider's name. Use one of {', '.join(KNOWN)}, {COMPATIBLE}, "
            "or a short name of your own in small letters."
        )
    return name


def _from_stored(name: str, fields: JsonObject) -> Provider | None:
    try:
        return provider_from_settings(check_name(name), dict(fields))
    except ValueError:
        return None


def _credentials(environment: Mapping[str, str]) -> frozenset[str]:
    """Names of what the service manager hands us; they stay as they are while we run."""
    folder = environment.get("CREDENTIALS_DIRECTORY")
    try:
        return frozenset(entry.name for entry in Path(folder).iterdir()) if folder else frozenset()
    except OSError:
        return frozenset()


def _all_from_environment(environment: Mapping[str, str]) -> dict[str, Provider]:
    """Neither the environment nor what the service manager hands us changes while we run."""
    credentials = _credentials(environment)
    providers = ((name, _from_environment(name, environment, name in credentials)) for name in KNOWN)
    return {name: provider for name, provider in providers if provider is not None}


def _from_environment(name: str, environment: Mapping[str, str], has_credential: bool) -> Provider | None:
    try:
        return provider_from_environment(name, environment, has_credential=has_credential)
    except ValueError:
        # An address variable that holds no address: as if it were not set.
        return None


def _read(file: Path) -> dict[str, JsonObject]:
    try:
        with file.open("rb") as opened:
            fields = parse_object(opened.read(_FILE_LIMIT_BYTES)) or {}
    except OSError:
        return {}
    return {name: as_object(value) for name, value in fields.items()}


def place_in_words(source: Literal["configured", "environment", "found", "practice"]) -> str:
    """For the person: where this provider comes from."""
    return {
        "configured": "connected on this machine",
        "environment": "from the environment",
        "found": "found running on this machine",
        "practice": "built in, offline, rule-based",
    }[source]
