"""The sshd that tests serve: a login with its key works, and neither a stranger's key nor an unknown server does."""

import subprocess
from pathlib import Path

from support.ssh_server import ssh_server


def test_only_its_key_and_only_a_known_server(tmp_path: Path) -> None:
    with ssh_server(tmp_path / "sshd") as server:
        known, nothing, stranger = tmp_path / "known_hosts", tmp_path / "nothing", tmp_path / "stranger"
        known.write_text(server.known_hosts_line())
        nothing.write_text("")
        subprocess.run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(stranger)), check=True)
        to = ("-p", str(server.port), f"{server.user}@{server.address}", "echo", "served")

        def said(command: str) -> tuple[int, str, str]:
            done = subprocess.run((*command.split(), *to), capture_output=True, text=True, timeout=30, check=False)
            return done.returncode, done.stdout, done.stderr

        assert said(server.command(known))[:2] == (0, "served\n"), server.log.read_text()
        assert "Host key verification failed" in said(server.command(nothing))[2]
        other = server.command(known).replace(str(server.key), str(stranger))
        assert "Permission denied" in said(other)[2]
