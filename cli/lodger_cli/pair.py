"""`lodger pair`: a code that lets one phone in, as text and as a picture to scan."""

import io
from typing import Any

from lodger_cli.hub_api import HubApi, hub_of_this_machine
from lodger_cli.terminal import fail, failure_code, say, say_json
from lodger_cli.wire import WireError

Pairing = dict[str, Any]


def pair(*, machine: bool, as_json: bool) -> None:
    """A code for a phone, or with `machine` for a daemon elsewhere."""
    try:
        pairing = new_pairing(hub_of_this_machine(), "machine" if machine else "client")
    except WireError as error:
        fail(str(error), failure_code(error))
    if as_json:
        say_json({"type": "pairing", **pairing})
        return
    for line in joining_lines(pairing) if machine else pairing_lines(pairing):
        say(line)


def new_pairing(hub: HubApi, role: str = "client") -> Pairing:
    """Make a code. Raises: WireError."""
    return hub.ask("POST", "/v1/pairings", {"role": role})


def joining_lines(pairing: Pairing) -> list[str]:
    """What to type on the other machine; for each address, as not every network reaches all."""
    minutes = pairing["expires_in_s"] // 60
    beyond = [link for link in pairing["links"] if link["reach"] != "machine"]
    lines = [f"  On the other machine, within {minutes} minutes{' (one of)' if len(beyond) > 1 else ''}:"]
    if not beyond:
        lines = [
            "  No other machine reaches this hub. Start it with --lan (home network), or put a tunnel in front:",
            f"  docs/phone.md. On this machine, for another LODGER_HOME, within {minutes} minutes:",
        ]
    for link in beyond or pairing["links"]:
        # A certificate of the hub's own is on its home network's address only.
        pinned = pairing["fingerprint"] if link["reach"] == "lan" else None
        flag = f" --fingerprint {pinned}" if pinned else ""
        lines.append(f"    lodger join {link['url'].split('/#')[0]} {pairing['code']}{flag}")
    return lines


def pairing_lines(pairing: Pairing) -> list[str]:
    """What a person needs, best address first."""
    links = pairing["links"]
    best = links[0]
    lines = [f"  Page     {best['url'].split('/#')[0]}"]
    lines += [f"           {link['url'].split('/#')[0]}" for link in links[1:]]
    lines.append(f"  Code     {pairing['code']}   (once, within {pairing['expires_in_s'] // 60} minutes)")
    if best["reach"] == "machine":
        lines += [
            "           This address works on this machine only. For a phone, start with --lan (home network),",
            "           or put a tunnel in front: docs/phone.md.",
        ]
    elif pairing["fingerprint"]:
        lines += [
            "           The phone will warn of a certificate it does not know. It is the right one if its SHA-256 is",
            f"           {pairing['fingerprint'][:47]}",
            f"           {pairing['fingerprint'][48:]}",
        ]
    return [*lines, "", *picture_lines(best["url"])]


def picture_lines(link: str) -> list[str]:
    """The link as a QR code in half blocks."""
    import segno

    drawn = io.StringIO()
    segno.make(link, error="l", micro=False).terminal(out=drawn, border=2, compact=True)
    return drawn.getvalue().splitlines()
