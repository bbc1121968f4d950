"""`lodger connect` and `lodger models`: model providers of this machine."""

import asyncio
import getpass
import sys
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from lodger_cli.places import local_daemon
from lodger_cli.plain import plain
from lodger_cli.processes import StartError
from lodger_cli.terminal import Exit, fail, note, say, say_json
from lodger_cli.wire import Frame, WireError


def connect(provider: str, described: dict[str, str], *, api_key_file: str, remove: bool, as_json: bool) -> None:
    """Store what a provider is and its key through the daemon, over its own socket.

    Args:
        described: `base_url`, `dialect`, `models` with commas between; what is empty is left to the daemon.
    """
    if remove:
        frame: Frame = {"type": "disconnect_provider", "target": "local", "provider_id": provider}
    else:
        fields = {**described, "api_key": _read_key(provider, api_key_file)}
        if fields["api_key"] and _is_open_to_the_network(described.get("base_url", "")):
            note("lodger: this address is not encrypted; whoever is between here and there can read the key")
        frame = {
            "type": "connect_provider",
            "target": "local",
            "provider_id": provider,
            "fields": {name: value for name, value in fields.items() if value},
        }
    try:
        answer, handles = asyncio.run(_change(frame))
    except (WireError, StartError) as error:
        fail(str(error), Exit.UNREACHABLE)
    if not answer.get("success"):
        fail(answer.get("error") or "it was not accepted")
    if remove and not answer.get("models_may_have_changed"):
        fail(f"{provider} was not connected with `lodger connect`, so nothing was forgotten")
    own = [handle for handle in handles if handle.startswith(f"{provider}/")]
    if as_json:
        say_json({"provider": provider, "connected": not remove, "models": own})
    elif remove:
        say(f"{provider} is forgotten.")
    elif own:
        say(
            f"{provider} is connected, with {len(own)} model(s), {plain(own[0])} among them; `lodger models` lists all."
        )
    else:
        say(f"{provider} is stored.")
        note("lodger: it lists no model yet: check that it runs and that its address and key are right")


async def _change(frame: Frame) -> tuple[Frame, list[str]]:
    """The answer, and the handles that can be used after it."""
    async with local_daemon(start=True) as client:
        answer = await client.request(frame)
        if not answer.get("success"):
            return answer, []
        listed = await client.request({"type": "list_models", "force": True})
        return answer, list(listed.get("available_handles") or [])


def _read_key(provider: str, api_key_file: str) -> str:
    """Never from an argument: other users of the machine can read those."""
    if api_key_file == "-":
        return sys.stdin.readline().strip()
    if api_key_file:
        try:
            return Path(api_key_file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            fail(f"the key's file cannot be read: {error}", Exit.USAGE)
    if sys.stdin.isatty():
        return getpass.getpass(f"API key of {provider} (empty for none): ").strip()
    return ""


def _is_open_to_the_network(base_url: str) -> bool:
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    try:
        stays_here = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        stays_here = False
    return parts.scheme == "http" and not stays_here


def models(*, as_json: bool) -> None:
    try:
        answer = asyncio.run(_request({"type": "list_models", "force": True}))
    except (WireError, StartError) as error:
        fail(str(error), Exit.UNREACHABLE)
    if not answer.get("success"):
        fail(answer.get("error") or "the models could not be listed")
    entries = answer.get("entries") or []
    if as_json:
        say_json(entries)
        return
    for entry in entries:
        mark = "*" if entry.get("isDefault") else " "
        # A provider names its models as it likes.
        say(plain(f"{mark} {entry['handle']:40} {entry.get('description') or entry.get('label', '')}"))
    say("* is what a new agent gets.")


async def _request(frame: Frame) -> Frame:
    async with local_daemon(start=True) as client:
        return await client.request(frame)
