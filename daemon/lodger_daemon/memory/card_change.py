"""`agent.toml` follows what a person changes of the agent's card. Blocking; call under the agent's lock."""

from collections.abc import Mapping
from dataclasses import replace

from lodger_daemon.memory.persons_change import ChangeResult, Unchanged, change_file
from lodger_daemon.memory.published import Published
from lodger_tools.validator.agent_toml import AGENT_TOML, BadAgentFile, read_agent_toml, write_agent_toml

_FOLLOWING = frozenset({"name", "description", "model"})


def change_card(published: Published, head: str, changes: Mapping[str, str], now_s: int) -> ChangeResult:
    """One commit with these values in place of the file's own. A memory without that file keeps its form; a file that
    cannot be read is left to whoever broke it.

    Raises: RefMoved, GitFailed.
    """
    found = published.trees.lookup(published.commit(head).tree, AGENT_TOML)
    known = BadAgentFile(()) if found is None else read_agent_toml(published.reader.read(found[1])[1])
    wanted = {name: value for name, value in changes.items() if name in _FOLLOWING}
    if isinstance(known, BadAgentFile) or not wanted:
        return Unchanged()
    changed = write_agent_toml(replace(known, **wanted))  # type: ignore[arg-type]
    if read_agent_toml(changed) == known:
        return Unchanged()
    return change_file(published, head, AGENT_TOML, changed, f"Change the agent's {', '.join(sorted(wanted))}", now_s)
