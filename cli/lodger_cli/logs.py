"""`lodger logs`: what daemon and hub wrote, from the journal where they are services, else from their files."""

import contextlib
import sys
import time
from dataclasses import asdict, dataclass
from typing import Final

from lodger_cli.journal import Journal, JournalAway
from lodger_cli.log_files import LogFile
from lodger_cli.log_records import Record, latest, read_file, read_line
from lodger_cli.places import paths
from lodger_cli.plain import plain
from lodger_cli.terminal import Exit, fail, note, say, say_json
from lodger_cli.units.places import installed
from lodger_cli.units.plan import Part, Scope

LOOK_EVERY_S: Final = 0.2
"""How soon a new line is shown."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the logs of the wanted parts are."""

    files: dict[Part, LogFile]
    journals: tuple[Journal, ...]

    def words(self) -> list[str]:
        named = [f"{part}: {file.path}" for part, file in self.files.items()]
        return [*named, *(" ".join(journal.command) for journal in self.journals)]

    def close(self) -> None:
        for file in self.files.values():
            file.close()
        for journal in self.journals:
            journal.close()


def logs(*, part: str, lines: int, follow: bool, as_json: bool) -> None:
    """Ends with 3 when nothing was ever logged here; interrupted while it follows, with 130."""
    wanted = [Part(part)] if part else list(Part)
    sources = find_sources(wanted)
    for words in sources.words():
        note(f"({words})")
    show = _Shown(as_json, with_part=len(wanted) > 1)
    try:
        with contextlib.closing(sources):
            _follow(sources, lines, show) if follow else _show_last(sources, lines, show)
    except JournalAway as error:
        fail(f"the journal cannot be read: {error}", Exit.UNREACHABLE)
    except KeyboardInterrupt:
        raise SystemExit(int(Exit.INTERRUPTED)) from None


class _Shown:
    def __init__(self, as_json: bool, *, with_part: bool) -> None:
        self._as_json = as_json
        self._with_part = with_part

    def __call__(self, record: Record) -> None:
        if self._as_json:
            say_json(asdict(record))
            return
        for line in record.text(with_part=self._with_part).split("\n"):
            say(plain(line))


def find_sources(parts: list[Part]) -> Sources:
    """A part that is a service of this user, or of the machine, logs to the journal; any other to a file. Blocking."""
    files: dict[Part, LogFile] = {}
    journals: dict[Scope, list[Part]] = {}
    scopes = [Scope.USER] if sys.platform == "darwin" else list(Scope)
    services = {scope: [part for part, _, _ in installed(scope)] for scope in scopes}
    for part in parts:
        scope = next((scope for scope, there in services.items() if part in there), None)
        if scope is None:
            files[part] = LogFile(paths().state / f"{part}.log")
        elif sys.platform == "darwin":
            files[part] = LogFile(paths().state / "logs" / f"{part}.log")
        else:
            journals.setdefault(scope, []).append(part)
    return Sources(files, tuple(Journal(scope, of_scope) for scope, of_scope in journals.items()))


def _show_last(sources: Sources, lines: int, show: _Shown) -> None:
    records = [*_last_of_files(sources, lines)]
    for journal in sources.journals:
        records += journal.last(lines)
    if not records:
        fail("nothing was logged there yet", Exit.UNREACHABLE)
    for record in latest(records, lines):
        show(record)


def _follow(sources: Sources, lines: int, show: _Shown) -> None:
    """Until interrupted."""
    for record in latest(_last_of_files(sources, lines), lines):
        show(record)
    for journal in sources.journals:
        journal.follow(lines)
    while True:
        for part, file in sources.files.items():
            for line in file.news():
                show(read_line(part, line))
        for journal in sources.journals:
            for record in journal.news():
                show(record)
        time.sleep(LOOK_EVERY_S)


def _last_of_files(sources: Sources, lines: int) -> list[Record]:
    return [record for part, file in sources.files.items() for record in read_file(part, file.last(lines))]
