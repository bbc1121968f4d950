"""The least a runner does: holds lock and listener without a path, cannot be read, runs shell commands on request."""

import ctypes
import os
import socket
import subprocess
import sys

PR_SET_DUMPABLE = 4

listener_fd, token_fd, lock_fd = (int(word) for word in sys.argv[1:4])
os.closerange(3, min(listener_fd, token_fd, lock_fd))
for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208
    if int(descriptor) > 2 and int(descriptor) not in (listener_fd, token_fd, lock_fd):
        try:
            os.close(int(descriptor))
        except OSError:
            pass
token = os.read(token_fd, 100)
os.close(token_fd)
ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
for descriptor in (listener_fd, lock_fd):
    os.set_inheritable(descriptor, False)
listener = socket.socket(fileno=listener_fd)
while True:
    connection, _ = listener.accept()
    command = b""
    while piece := connection.recv(65536):
        command += piece
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "RUNNER_PID": str(os.getpid())}
    done = subprocess.run(
        ("sh", "-c", command),
        stdin=subprocess.DEVNULL,
        stdout=-1,
        stderr=subprocess.STDOUT,
        env=environment,
        check=False,
    )
    try:
        connection.sendall(f"{done.returncode}\n".encode() + done.stdout)
    except OSError:
        pass
    connection.close()
