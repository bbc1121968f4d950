"""The git host that carries memories between machines: addresses, credentials, and which agents it holds."""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from lodger_daemon.identity import AgentId
from lodger_daemon.memory.core.git_addresses import GitAddress
from lodger_daemon.memory.core.ssh_advice import ssh_advice

if TYPE_CHECKING:
    import http.client

TokenProvider = Callable[[], str | None]
_LIST_LIMIT_S: Final = 3.0
_LIST_LIMIT_BYTES: Final = 4 * 1024 * 1024
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
HUB_USER: Final = "letta"
_CAREFUL: Final = (
    ("credential.helper", ""),
    ("http.followRedirects", "false"),
    ("http.sslVerify", "true"),
    ("http.lowSpeedLimit", "1"),
    ("http.lowSpeedTime", "30"),
    ("protocol.allow", "never"),
)
_SSH: Final = (
    # A connection that others hold open is used, but none is left behind; and why it failed is always said.
    "ssh -o BatchMode=yes -o StrictHostKeyChecking=yes -o ForwardAgent=no -o ClearAllForwardings=yes"
    " -o PermitLocalCommand=no -o ControlMaster=no -o LogLevel=ERROR"
    " -o ConnectTimeout=20 -o ServerAliveInterval=10 -o ServerAliveCountMax=3"
)


class Remote(Protocol):
    """What carries memories between machines. Its methods may read files or a keyring: call them on a thread."""

    @property
    def announces(self) -> bool:
        """Whether word of newer memory comes by itself."""
        ...

    def url(self, agent_id: AgentId) -> str: ...

    def environment(self) -> dict[str, str]:
        """The credential for git, in the environment only and for this host only."""
        ...

    def cleaned(self, text: str) -> str:
        """An error text without the credential, whatever the other side made of it."""
        ...

    def list_agents(self) -> tuple[AgentId, ...]:
        """Agents it holds, oldest first; empty when it cannot say."""
        ...


@dataclass(frozen=True, slots=True)
class ForeignRemote:
    """Any git host: smart HTTP with a token, or SSH with the person's own agent, keys and known hosts."""

    address: GitAddress
    token_provider: TokenProvider
    """Asked before each command. May read a file or a keyring."""
    agent_socket: str = ""
    """Where the person's SSH agent listens."""

    @property
    def announces(self) -> bool:
        return False

    def url(self, agent_id: AgentId) -> str:
        return self.address.url(agent_id)

    def environment(self) -> dict[str, str]:
        settings = [*_CAREFUL, (f"protocol.{self.address.scheme}.allow", "always")]
        if self.address.scheme == "ssh":
            more = {"SSH_AUTH_SOCK": self.agent_socket} if self.agent_socket else {}
            return {**git_environment(settings), "GIT_SSH_COMMAND": _SSH, "GIT_SSH_VARIANT": "ssh", **more}
        token = self.token_provider()
        if token:
            settings.append((f"http.{self.address.origin}/.extraHeader", _basic(self.address.user, token)))
        return git_environment(settings)

    def cleaned(self, text: str) -> str:
        if self.address.scheme == "ssh":
            return ssh_advice(text, self.address, bool(self.agent_socket)) or without_token(text, "", None)
        return without_token(text, self.address.user, self.token_provider())

    def list_agents(self) -> tuple[AgentId, ...]:
        return ()


def git_environment(settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Settings for one git command, in the environment only: later ones count."""
    environment = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings):
        environment[f"GIT_CONFIG_KEY_{number}"] = key
        environment[f"GIT_CONFIG_VALUE_{number}"] = value
    return environment


def without_token(text: str, user: str, token: str | None) -> str:
    """The end of a text, in one line, without the token in any form in which we send it."""
    if token:
        for secret in (token, _encoded(user, token)):
            text = text.replace(secret, "***")
    return " ".join(text.split())[-400:]


def _basic(user: str, token: str) -> str:
    return f"Authorization: Basic {_encoded(user, token)}"


def _encoded(user: str, token: str) -> str:
    return base64.b64encode(f"{user}:{token}".encode()).decode()


@dataclass(frozen=True, slots=True)
class MemoryRemote:
    """A hub, or whatever speaks its address form."""

    base_url: str
    token_provider: TokenProvider
    """Asked before each command, so that a rotated token is used at once. May read a file."""
    is_trusted: Callable[[], bool] = lambda: True
    """Asked before each command: whether what answers at that address may be talked to at all. May read files."""
    ca_file: Path | None = None
    """What alone vouches for its certificate; the system's authorities when None."""

    @property
    def announces(self) -> bool:
        return True

    def url(self, agent_id: AgentId) -> str:
        return f"{self.base_url.rstrip('/')}/v1/git/{agent_id}/state.git"

    def environment(self) -> dict[str, str]:
        trusted = self.is_trusted()
        settings = list(_CAREFUL)
        if self.ca_file is not None:
            settings.append(("http.sslCAInfo", str(self.ca_file)))
        if trusted:
            # Neither the token nor a word of this memory to a stranger, and nothing taken from one.
            settings.append(("protocol.https.allow", "always"))
        if trusted and urlsplit(self.base_url).hostname in _LOOPBACK:
            settings.append(("protocol.http.allow", "always"))
        token = self.token_provider() if trusted else None
        if token:
            settings.append((f"http.{self.base_url.rstrip('/')}/.extraHeader", _basic(HUB_USER, token)))
        return git_environment(settings)

    def cleaned(self, text: str) -> str:
        return without_token(text, HUB_USER, self.token_provider())

    def _connection(self, scheme: str, host: str, port: int | None) -> "http.client.HTTPConnection":
        """Raises: OSError (ssl.SSLError is one)."""
        import http.client

        if scheme != "https":
            return http.client.HTTPConnection(host, port, timeout=_LIST_LIMIT_S)
        import ssl

        context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
        return http.client.HTTPSConnection(host, port, timeout=_LIST_LIMIT_S, context=context)

    def list_agents(self) -> tuple[AgentId, ...]:
        """Agents of this remote, oldest first; empty when it does not answer as it should. Blocks up to 3 s."""
        listed = self.ask("/v1/agents/")
        if not isinstance(listed, list):
            return ()
        ids = [item.get("id") for item in listed if isinstance(item, dict)]
        return tuple(AgentId(found) for found in ids if isinstance(found, str) and is_agent_id(found))

    def ask(self, path: str) -> object:
        """What it answers to a GET, parsed; None when it does not answer as it should. Blocks up to 3 s."""
        import http.client

        parts = urlsplit(self.base_url)
        if not self.is_trusted():
            return None
        if parts.hostname is None or (parts.scheme == "http" and parts.hostname not in _LOOPBACK):
            return None
        try:
            connection = self._connection(parts.scheme, parts.hostname, parts.port)
        except OSError:
            # A certificate file that cannot be used: nobody is believed without it.
            return None
        token = self.token_provider()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            connection.request("GET", f"{parts.path.rstrip('/')}{path}", headers=headers)
            answer = connection.getresponse()
            body = answer.read(_LIST_LIMIT_BYTES + 1)
            if answer.status != 200 or len(body) > _LIST_LIMIT_BYTES:
                return None
            found: object = json.loads(body)
            return found
        except (OSError, http.client.HTTPException, ValueError, RecursionError):
            return None
        finally:
            connection.close()


def is_agent_id(text: str) -> bool:
    """Well-formed, so that it may name a folder and stand in an address."""
    rest = text.removeprefix("agent-")
    return (
        rest != text
        and 0 < len(rest) <= 120
        and rest.isascii()
        and rest.replace("-", "a").isalnum()
        and not text.startswith("agent-local-")
    )
