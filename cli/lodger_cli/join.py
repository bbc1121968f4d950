"""`lodger join`: make this machine one of those behind a hub, with a token of its own."""

import socket
import urllib.parse
from pathlib import Path
from typing import Final

from lodger_cli.hub_api import ask_hub
from lodger_cli.pinning import fetch_certificate
from lodger_cli.places import paths
from lodger_cli.plain import plain
from lodger_cli.terminal import Exit, fail, failure_code, say, say_json
from lodger_cli.wire import WireError
from lodger_daemon.durable_files import write_durably

CERTIFICATE_FILE: Final = "hub.pem"
TOKEN_FILE: Final = "hub.token"  # noqa: S105 - the name of its file


def join(url: str, code: str, *, fingerprint: str, as_json: bool) -> None:
    """Bring the code to the hub and keep the token it gives; says which settings name both. With a fingerprint, also
    keep the certificate that has it: nothing else is believed about this hub from then on."""
    base = url.split("#")[0].rstrip("/")
    if not _is_safe(base):
        fail(f"{base} would carry the token in the clear; use its https address", Exit.USAGE)
    where = paths()
    file = where.config / TOKEN_FILE
    ca_file = where.config / CERTIFICATE_FILE if fingerprint else None
    try:
        if ca_file is not None:
            _write_private(ca_file, fetch_certificate(base, fingerprint))
        given = ask_hub(base, "", "POST", "/v1/pair", {"code": code, "name": socket.gethostname()}, ca_file)
    except WireError as error:
        fail(str(error), failure_code(error))
    if given.get("role") != "machine":
        fail("this code is for a phone; `lodger pair --machine` shows one for a machine")
    _write_private(file, f"{given['token']}\n")
    if as_json:
        joined = {"type": "joined", "url": base, "token_file": str(file), "device_id": given["device_id"]}
        say_json({**joined, "ca_file": None if ca_file is None else str(ca_file)})
        return
    say(f"This machine is known to the hub as {plain(str(given.get('name')))}. Add to {where.settings_file}:")
    say("")
    say("[hub]")
    say(f'url = "{base}"')
    say(f'token_file = "{file}"')
    if ca_file is not None:
        say(f'ca_file = "{ca_file}"')
    say("")
    say("Then start `lodger daemon`.")


def _is_safe(url: str) -> bool:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost"))


def _write_private(file: Path, text: str) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_durably(file, text)
