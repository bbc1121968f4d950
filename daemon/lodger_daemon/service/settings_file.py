"""Changing the settings file: locked, validated as a whole, replaced at once; comments and order are kept."""

import fcntl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from lodger_daemon.durable_files import write_durably
from lodger_daemon.service.settings import Settings, SettingsError, load_settings, parse_settings

if TYPE_CHECKING:
    from tomlkit import TOMLDocument
    from tomlkit.items import Table


class SettingsFile:
    """The one writer of the settings of this machine. Blocking: call it from a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Settings:
        """Raises: SettingsError."""
        return load_settings(self._path)

    def add_allow_rules(self, rules: Sequence[str]) -> Settings:
        """Append those that are not there. Raises: SettingsError; then the file is as it was."""
        return self._append("permissions", "allow", rules)

    def add_allowed_hosts(self, entries: Sequence[str]) -> Settings:
        """Append those that are not there. Raises: SettingsError; then the file is as it was."""
        return self._append("network", "allow", entries)

    def add_open_ports(self, rules: Sequence[str]) -> Settings:
        """Append those that are not there. Raises: SettingsError; then the file is as it was."""
        return self._append("ports", "open", rules)

    def _append(self, section: str, key: str, entries: Sequence[str]) -> Settings:
        def add(document: "TOMLDocument") -> None:
            there = _table(document, section).setdefault(key, [])
            for entry in entries:
                if entry not in there:
                    there.append(entry)

        return self._change(add)

    def _change(self, change: "Callable[[TOMLDocument], None]") -> Settings:
        import tomlkit

        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._path.parent / ".settings.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            load_settings(self._path)  # a broken file is never replaced by a nearly empty one
            text = self._path.read_text("utf-8") if self._path.exists() else ""
            document = tomlkit.parse(text)
            change(document)
            changed = tomlkit.dumps(document)
            settings = parse_settings(changed.encode(), str(self._path))
            self._replace(changed)
            return settings

    def _replace(self, text: str) -> None:
        try:
            write_durably(self._path, text)
        except OSError as error:
            raise SettingsError(f"{self._path} could not be written ({error.strerror}); it is as it was") from error


def _table(document: "TOMLDocument", name: str) -> "Table":
    import tomlkit

    if name not in document:
        document[name] = tomlkit.table()
    return cast("Table", document[name])
