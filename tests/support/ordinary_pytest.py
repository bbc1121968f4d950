"""Tests run once more, as a user who is neither root nor has anybody else's boxes. Root only."""

import os
import pwd
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from support.real_boxes import USER_NAME
from support.sandbox_users import user_of_boxes

ROOT: Final = Path(__file__).parents[2]
LIMIT_S: Final = 300.0
_START: Final = """
set -e
python=$1 user=$2 root=$3
shift 3
mount --bind "$root" /media
# The interpreter may lie below a private home: there, and nowhere else in it, this user may look.
case $python in
/root/*)
  mount --bind "$python" /mnt
  mount -t tmpfs -o mode=0755,size=1m none /root
  mkdir -p "$python"
  mount --bind /mnt "$python"
  ;;
esac
mount -t tmpfs -o mode=0755 none /srv
mount -t tmpfs -o mode=0755 none /home
# The checkout may lie below what is covered now.
if ! [ -d "$root" ]; then
  mkdir -p "$root"
  mount --bind /media "$root"
fi
umount /media
# A shell, so that a real sshd lets this user in.
sed "s#^\\([^:]*:[^:]*:$user:.*\\):[^:]*\\$#\\1:/bin/sh#" /etc/passwd > /home/passwd
mount --bind /home/passwd /etc/passwd
mkdir /home/person
chown "$user" /srv /home/person
export HOME=/home/person
exec setpriv --reuid "$user" --regid "$user" --clear-groups "$@"
"""
"""In a mount namespace of its own: a home, and /srv for workspaces that boxes see among the rest of the machine."""


_IN_OWN_NETWORK: Final = """
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    # SIOCSIFFLAGS and IFF_UP.
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh22x", b"lo", 1))
with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", "w") as first:
    first.write("0")
os.execvp(sys.argv[1], sys.argv[1:])
"""


def run_pytest(*arguments: str, as_root: bool = False, own_network: bool = False) -> subprocess.CompletedProcess[str]:
    """With the user that boxes have as root, who has a name and no rights.

    Args:
        as_root: only the network is another then.
        own_network: nothing but a loopback, where every port is free and everybody's.
    """
    user = user_of_boxes()
    assert os.geteuid() == 0 and pwd.getpwuid(user.uid).pw_name == USER_NAME
    words: tuple[str, ...] = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments)
    if not as_root:
        words = ("sh", "-c", _START, "sh", sys.base_prefix, str(user.uid), str(ROOT), *words)
    if own_network:
        words = (sys.executable, "-c", _IN_OWN_NETWORK, *words)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        if not as_root:
            os.chown(scratch, user.uid, user.gid)
        environment = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TMPDIR": scratch,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return subprocess.run(
            ("unshare", "-m", "--propagation", "slave", *(("-n",) if own_network else ()), *words),
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
