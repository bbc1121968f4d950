"""A real sshd with keys and folders of its own, on a loopback address; nothing of the system's is read or changed.

It logs in whoever runs the tests, by one key only. One sshd serves one connection, as inetd would start it, so the port
is never free for anybody else in between. Needs openssh-server.
"""

import getpass
import os
import socket
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.needed_programs import needed

ADDRESS: Final = "127.0.0.2"
"""None that programs keep from their proxy."""
SEPARATION_FOLDER: Final = Path("/run/sshd")
"""Built into Debian's sshd: started as root it wants this folder, which is gone after a reboot."""
LOGIN_LIMIT_S: Final = 30


@dataclass(frozen=True, slots=True)
class SshServer:
    address: str
    port: int
    user: str
    """Who may log in: oneself."""
    key: Path
    """The private key that opens it, mode 600, its owner whoever runs the tests."""
    host_key: str
    """Type and key of the server, as a line of known_hosts has them after the host's name."""
    log: Path

    @property
    def host(self) -> str:
        """As an allow-list names it."""
        return f"{self.address}:{self.port}"

    def url(self, repository: Path) -> str:
        """As git takes it."""
        return f"ssh://{self.user}@{self.host}{repository}"

    def known_hosts_line(self, name: str = "") -> str:
        """For known_hosts; of another name that leads here too when one is given."""
        shown = name or self.address
        return f"{shown if self.port == 22 else f'[{shown}]:{self.port}'} {self.host_key}\n"

    def command(self, known_hosts: Path) -> str:
        """An ssh that knows this server and reads nothing of the person's, for `GIT_SSH_COMMAND`."""
        options = ("BatchMode=yes", "StrictHostKeyChecking=yes", "IdentitiesOnly=yes", "GlobalKnownHostsFile=none")
        words = " ".join(f"-o {option}" for option in options)
        return f"ssh -F none {words} -o UserKnownHostsFile={known_hosts} -i {self.key}"


@contextmanager
def ssh_server(folder: Path, address: str = ADDRESS, port: int = 0) -> Iterator[SshServer]:
    """Serves this user's whole account to whoever holds `key`, until the end of the block.

    Args:
        folder: for keys, configuration and log; keys that are there are kept, so that a server can come back.
        port: 0 takes a free one.
    """
    sshd = needed("sshd")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("host_key", "client_key"):
        if (folder / name).exists():
            continue
        words = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name))
        subprocess.run(words, check=True)
    log, config = folder / "log", folder / "sshd_config"
    config.write_text(_config(folder))
    if os.geteuid() == 0:
        SEPARATION_FOLDER.mkdir(mode=0o755, exist_ok=True)
    with _Server((address, port), (sshd, "-i", "-f", str(config), "-E", str(log))) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        host_key = " ".join((folder / "host_key.pub").read_text().split()[:2])
        try:
            user = getpass.getuser()
            yield SshServer(address, server.server_address[1], user, folder / "client_key", host_key, log)
        finally:
            server.shutdown()
            serving.join()
            server.end_all()


def _config(folder: Path) -> str:
    return "\n".join(
        (
            f"HostKey {folder / 'host_key'}",
            f"AuthorizedKeysFile {folder / 'client_key.pub'}",
            "AuthenticationMethods publickey",
            "PermitRootLogin prohibit-password",
            f"LoginGraceTime {LOGIN_LIMIT_S}",
            # Its folders may lie below one that others may write to, such as /tmp.
            "StrictModes no",
            "UsePAM no",
            "PrintMotd no",
            "PrintLastLog no",
            "PermitUserRC no",
            "DisableForwarding yes",
            "LogLevel VERBOSE",
            "",
        )
    )


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int], argv: tuple[str, ...]) -> None:
        super().__init__(address, _Connection)
        self.argv = argv
        self.running: set[subprocess.Popen[bytes]] = set()

    def end_all(self) -> None:
        for process in tuple(self.running):
            process.terminate()
            process.wait(LOGIN_LIMIT_S)


class _Connection(socketserver.BaseRequestHandler):
    request: socket.socket
    server: _Server

    def handle(self) -> None:
        environment = {"PATH": os.environ["PATH"]}
        process = subprocess.Popen(self.server.argv, stdin=self.request, stdout=self.request, env=environment)
        self.server.running.add(process)
        process.wait()
        self.server.running.discard(process)
