"""What ssh in a box is told: to go through the box's proxy, and where the servers stand that the person knows. Pure."""

import shlex
from collections.abc import Sequence
from typing import Final

FOLDER_INSIDE: Final = "/run/lodger/ssh"
"""Where a box shows the files for ssh."""
CONNECT: Final = f"{FOLDER_INSIDE}/connect"
AGENT_INSIDE: Final = f"{FOLDER_INSIDE}/agent"
"""The socket of the person's ssh agent, where it is lent."""
MACHINE_CONFIG: Final = "/etc/ssh/ssh_config"
"""The machine's own, which ssh reads whatever its user has; covered in boxes."""
MACHINE_KNOWN_HOSTS: Final = "/etc/ssh/ssh_known_hosts"


def client_config(known_hosts: Sequence[str]) -> str:
    """In place of the machine's: what that includes belongs to root, who is nobody in a box, and ssh would stop there.

    Args:
        known_hosts: files as the box sees them, beside what ssh reads by itself; one that is not there does no harm.
    """
    files = " ".join(f'"{path}"' for path in (MACHINE_KNOWN_HOSTS, *known_hosts) if _is_plain(path))
    return (
        "# Made by Lodger for the boxes of agents. The machine's own file is not read there.\n"
        # The box's own servers are reached without a proxy, as with the variables for other programs.
        "Host * !localhost !127.0.0.1 !::1\n"
        f"    ProxyCommand /bin/sh {CONNECT} '%h' %p\n"
        "    ProxyUseFdpass yes\n"
        "Host *\n"
        f"    GlobalKnownHostsFile {files}\n"
    )


def connect_script(interpreters: Sequence[str], program: str, proxy_port: int) -> str:
    """
    Args:
        interpreters: where the Python that runs inside may be seen, likeliest first.
    """
    places = " ".join(map(shlex.quote, interpreters))
    return (
        f"for python in {places}; do\n"
        f'    [ -x "$python" ] && exec "$python" -I -S -B {shlex.quote(program)} {proxy_port} "$@"\n'
        "done\n"
        'echo "The program that connects ssh is not to be seen in this box." >&2\n'
        "exit 1\n"
    )


def _is_plain(path: str) -> bool:
    """Whether it can stand between quotes in such a file."""
    return not any(letter in '"\\' or ord(letter) < 32 for letter in path)
