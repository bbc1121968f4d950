"""The folder that boxes with a way out see for ssh: its configuration, and as root the servers that root knows.

No key is ever in it. Blocks; for threads.
"""

import logging
import os
import tempfile
from pathlib import Path
from typing import Final

from lodger_daemon.network.core.ssh_texts import CONNECT, FOLDER_INSIDE, MACHINE_CONFIG, client_config, connect_script
from lodger_sandbox.contract import Mount
from lodger_sandbox.core.paths import moved
from lodger_sandbox.core.policy import INTERPRETER_FOLDER, PROGRAM_FOLDER, PolicyRefused
from lodger_sandbox.host import base_interpreter
from lodger_sandbox.sources import open_without_links

KNOWN_HOSTS: Final = ".ssh/known_hosts"
"""In the home, where ssh keeps it and boxes see it."""
_COPY: Final = "known_hosts"
_CONFIG: Final = "config"
_KNOWN_HOSTS_LIMIT_BYTES: Final = 4 * 1024 * 1024
_PROGRAM: Final = f"{PROGRAM_FOLDER}/ssh_connect.py"

_log = logging.getLogger(__name__)


class SshFiles:
    """Written anew at each start of a box where they differ; running boxes see what is new in the folder."""

    def __init__(self, folder: Path, home: Path, proxy_port: int) -> None:
        """
        Args:
            folder: in the daemon's state.
            home: the person's, where boxes show known_hosts.
        """
        self._folder = folder
        self._home = home
        self._proxy_port = proxy_port

    def mounts(self) -> tuple[Mount, ...]:
        """What a box with a way out needs in its request; nothing when there is no room for the files, since a box
        without them is of use too. Raises: SandboxUnavailable."""
        interpreter = base_interpreter()
        places = (moved(interpreter.executable, interpreter.prefix, INTERPRETER_FOLDER), interpreter.executable)
        try:
            self._write_files(connect_script(places, _PROGRAM, self._proxy_port))
        except OSError as error:
            _log.warning("ssh in a new box will not find its way out: %s", error)
            return ()
        shown = Mount(str(self._folder), FOLDER_INSIDE)
        # Without an ssh there is nothing to cover.
        covers = Path(MACHINE_CONFIG).is_file()
        return (shown, Mount(str(self._folder / _CONFIG), MACHINE_CONFIG)) if covers else (shown,)

    def make_folder(self) -> Path:
        """Raises: OSError."""
        if not self._folder.is_dir():
            self._folder.mkdir(exist_ok=True)
            # As root the boxes' user has to look into it; nobody else gets as far as here.
            self._folder.chmod(0o755)
        return self._folder

    def _write_files(self, connect: str) -> None:
        self.make_folder()
        known = [str(self._home / KNOWN_HOSTS)]
        if os.geteuid() == 0:
            # Root's file is root's alone most of the time, and boxes have another user.
            known.append(f"{FOLDER_INSIDE}/{_COPY}")
            _write(self._folder / _COPY, _read_known_hosts(Path(os.path.realpath(self._home)) / KNOWN_HOSTS))
        _write(self._folder / Path(CONNECT).name, connect.encode())
        _write(self._folder / _CONFIG, client_config(known).encode())


def _read_known_hosts(path: Path) -> bytes:
    """Empty when it is not there or reached by a link."""
    try:
        descriptor = open_without_links(str(path))
    except PolicyRefused:
        return b""
    try:
        with open(f"/proc/self/fd/{descriptor}", "rb") as file:
            return file.read(_KNOWN_HOSTS_LIMIT_BYTES)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _write(path: Path, content: bytes) -> None:
    """Whole, readable by the boxes' user. Raises: OSError."""
    try:
        if path.read_bytes() == content:
            return
    except FileNotFoundError:
        pass
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
