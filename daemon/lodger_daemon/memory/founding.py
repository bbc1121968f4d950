"""Making an agent's published repository: cloned as data from the remote, or new. Blocking; call under the lock."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from lodger_daemon.identity import AgentId
from lodger_daemon.memory.core.commits import new_commit
from lodger_daemon.memory.core.first_files import FIRST_MESSAGE
from lodger_daemon.memory.core.pack import object_id
from lodger_daemon.memory.core.remote_answers import RemoteAnswer, judge
from lodger_daemon.memory.following import RemoteInvalid, follow
from lodger_daemon.memory.kept_gits import RefChange
from lodger_daemon.memory.published import FETCHED, MAIN, Published
from lodger_daemon.memory.remote import Remote

_MAKING: Final = "making.git"


@dataclass(frozen=True, slots=True)
class Adopted:
    """The remote's memory is here now."""


@dataclass(frozen=True, slots=True)
class NotThere:
    """The remote answered that it has no memory of this agent."""


@dataclass(frozen=True, slots=True)
class NotHad:
    """The remote did not answer, or what it has cannot be taken."""

    reason: str


AdoptResult: TypeAlias = Adopted | NotThere | NotHad


def adopt(published: Published, agent_id: AgentId, remote: Remote, now_s: int) -> AdoptResult:
    """Clone without a work tree. Nothing is in place before all of it is fetched and validated."""
    fresh = _begin(published)
    try:
        exit_code, text = fresh.fetch(remote.url(agent_id), remote.environment())
        match judge(exit_code, text):
            case RemoteAnswer.DONE:
                pass
            case RemoteAnswer.EMPTY:
                return NotThere()
            case RemoteAnswer.BEHIND | RemoteAnswer.TROUBLE | RemoteAnswer.REFUSED:
                return NotHad(remote.cleaned(text) or "the remote took too long")
        fetched = fresh.ref(FETCHED)
        if fetched is None:
            return NotThere()
        result = follow(fresh, fetched, (), now_s)
        if isinstance(result, RemoteInvalid):
            return NotHad("what the remote has is not valid: " + "; ".join(result.findings[:5]))
        published.put_in_place(fresh)
        return Adopted()
    finally:
        fresh.close()


def found(published: Published, files: Mapping[str, bytes], now_s: int) -> None:
    """A new memory whose first commit has these files, all in the root."""
    fresh = _begin(published)
    try:
        blobs = {name: object_id("blob", content) for name, content in files.items()}
        tree = b"".join(b"100644 %s\0" % name.encode() + bytes.fromhex(blobs[name]) for name in sorted(files))
        line = published.identity.line(now_s)
        commit = new_commit(object_id("tree", tree), (), line, line, FIRST_MESSAGE)
        fresh.write([*(("blob", content) for content in files.values()), ("tree", tree), ("commit", commit)])
        fresh.change_refs(RefChange(MAIN, object_id("commit", commit), None))
        published.put_in_place(fresh)
    finally:
        fresh.close()


def _begin(published: Published) -> Published:
    """What a crash left half-made is thrown away: nobody has been told of it."""
    shutil.rmtree(published.folder / _MAKING, ignore_errors=True)
    return published.begin(_MAKING)
