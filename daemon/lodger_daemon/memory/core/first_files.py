"""The files a new agent's memory begins with."""

from lodger_daemon.memory.contract import AgentCard
from lodger_tools.validator.agent_toml import AgentFile, write_agent_toml

FIRST_MESSAGE = "Begin this memory\n"

_INDEX = """# Memory

Core files stand beside this index and are part of every prompt; everything else lives in folders and is read when
needed. Every other Markdown file begins with front matter: `name` and `description`.

- about-me.md: who I am
"""


def first_files(card: AgentCard) -> dict[str, bytes]:
    """Name to content; all in the root."""
    about = " ".join((card.description or "").split())
    text = f"I am {' '.join(card.name.split())}."
    note = f"---\nname: about-me\ndescription: Who I am\n---\n\n{text}{' ' + about if about else ''}\n"
    agent = AgentFile(card.name, card.description, card.model, card.toolset)
    return {"MEMORY.md": _INDEX.encode(), "about-me.md": note.encode(), "agent.toml": write_agent_toml(agent)}


def first_shared_files(name: str) -> dict[str, bytes]:
    """What a memory begins with that agents share."""
    text = f"""# {name}

What several agents know together. This index is part of the prompt of each of them, the names and descriptions of all
other files too; what is in the files is read when needed. Every other Markdown file begins with front matter: `name`
and `description`.
"""
    return {"MEMORY.md": text.encode()}


def card_of(agent: AgentFile) -> AgentCard:
    return AgentCard(agent.name, agent.description, agent.model, agent.toolset)
