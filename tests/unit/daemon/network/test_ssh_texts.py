"""What boxes are told for ssh, as ssh itself and the shell read it."""

import subprocess
from pathlib import Path

import pytest

from lodger_daemon.network.core.ssh_texts import CONNECT, MACHINE_KNOWN_HOSTS, client_config, connect_script

pytestmark = pytest.mark.needs("ssh")


def read_by_ssh(folder: Path, config: str, host: str) -> dict[str, str]:
    file = folder / "config"
    file.write_text(config)
    shown = subprocess.run(("ssh", "-G", "-F", str(file), host), check=True, capture_output=True, text=True)
    return dict(line.split(" ", 1) for line in shown.stdout.splitlines() if " " in line)


def test_every_server_but_the_boxs_own_is_reached_through_the_proxy(tmp_path: Path) -> None:
    config = client_config(("/home/ada lovelace/.ssh/known_hosts",))
    for host in ("git.example", "127.0.0.2", "localhost.example"):
        read = read_by_ssh(tmp_path, config, host)
        assert read["proxycommand"].startswith(f"/bin/sh {CONNECT} ")
        assert read["proxyusefdpass"] == "yes"
        assert read["globalknownhostsfile"] == f"{MACHINE_KNOWN_HOSTS} /home/ada lovelace/.ssh/known_hosts"
        assert read["stricthostkeychecking"] == "ask"
    for host in ("localhost", "127.0.0.1", "::1"):
        assert "proxycommand" not in read_by_ssh(tmp_path, config, host)


@pytest.mark.parametrize("home", ['/home/"x', "/home/x\nHost *\n  StrictHostKeyChecking no\n#", "/home/x\\"])
def test_a_home_that_cannot_be_quoted_adds_no_line(tmp_path: Path, home: str) -> None:
    read = read_by_ssh(tmp_path, client_config((f"{home}/.ssh/known_hosts",)), "git.example")
    assert read["globalknownhostsfile"] == MACHINE_KNOWN_HOSTS
    assert read["stricthostkeychecking"] == "ask"


def test_the_first_interpreter_that_is_there_is_taken(tmp_path: Path) -> None:
    python = tmp_path / "it's python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    script = connect_script((str(tmp_path / "absent"), str(python)), "/x/connect.py", 3128)
    words = ("/bin/sh", "-c", script, "sh", "git.example", "22")
    refused = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (1, "") and "not to be seen" in refused.stderr
    python.chmod(0o755)
    started = subprocess.run(words, capture_output=True, text=True, check=True)
    assert started.stdout.split() == ["-I", "-S", "-B", "/x/connect.py", "3128", "git.example", "22"]
