"""A real keyring for a test: D-Bus and GNOME's keyring as processes of their own, in a folder of the test's.

Ended with the block. Nothing of the person who runs the tests is seen or used.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jeepney import DBusAddress, new_method_call
from jeepney.io.blocking import open_dbus_connection

from support.needed_programs import needed
from support.patience import LIMIT_S

_BUS = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
_SECRETS = "org.freedesktop.secrets"


@contextmanager
def secret_service(folder: Path, unlocked: bool = True) -> Iterator[dict[str, str]]:
    """The environment in which the keyring can be reached. One that is locked has nobody who could unlock it."""
    folder.mkdir(mode=0o700)
    runtime, home = folder / "run", folder / "home"
    runtime.mkdir(mode=0o700)
    home.mkdir(mode=0o700)
    address = f"unix:path={folder}/bus"
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_RUNTIME_DIR": str(runtime),
        "DBUS_SESSION_BUS_ADDRESS": address,
    }
    with ExitStack() as stack:
        bus = [needed("dbus-daemon"), "--session", "--nofork", "--nopidfile", f"--address={address}"]
        _start(stack, bus, environment, "")
        _wait_for(folder / "bus")
        ring = [needed("gnome-keyring-daemon"), "--foreground", "--components=secrets"]
        _start(stack, ring + (["--unlock"] if unlocked else []), environment, "a password\n")
        _wait_until_owned(address)
        yield environment


def _start(stack: ExitStack, argv: list[str], environment: dict[str, str], stdin: str) -> None:
    process = subprocess.Popen(
        argv,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )
    assert process.stdin is not None
    stack.callback(process.wait, 10)
    stack.callback(process.kill)
    process.stdin.write(stdin.encode())
    process.stdin.close()


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.005)


def _wait_until_owned(address: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    with open_dbus_connection(bus=address) as connection:
        asked = new_method_call(_BUS, "NameHasOwner", "s", (_SECRETS,))
        while not connection.send_and_get_reply(asked).body[0]:
            assert time.monotonic() < deadline, "the keyring never came"
            time.sleep(0.01)
