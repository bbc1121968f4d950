"""`lodger memory token`: store the token of a git host where providers' keys rest."""

import getpass
import os
import sys
from pathlib import Path

from lodger_cli.places import paths
from lodger_cli.terminal import Exit, fail, say, say_json
from lodger_daemon.models.keys import KeyRefused, KeyStore
from lodger_daemon.service.memory_hosts import MemoryHost, key_name


def store_token(host: str, *, token_file: str, remove: bool, as_json: bool) -> None:
    """Never from an argument: other users of the machine can read those."""
    if host not in list(MemoryHost):
        fail(f"there is no host {host}; name one of {', '.join(MemoryHost)}", Exit.USAGE)
    keys, name = KeyStore(paths().secrets, os.environ), key_name(MemoryHost(host))
    try:
        if remove:
            if not keys.forget(name):
                fail(f"no token of the {host} is stored here")
            place = "none"
        else:
            place = keys.store(name, _read(host, token_file))
    except (KeyRefused, OSError) as error:
        fail(str(error))
    if as_json:
        say_json({"host": host, "source": place})
    else:
        say(f"The token of the {host} is {'forgotten' if remove else f'stored ({place})'}.")


def _read(host: str, file: str) -> str:
    if file not in ("", "-"):
        try:
            return Path(file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            fail(f"the token's file cannot be read: {error}", Exit.USAGE)
    if sys.stdin.isatty() and not file:
        return getpass.getpass(f"Token of the {host}: ").strip()
    return sys.stdin.readline().strip()
