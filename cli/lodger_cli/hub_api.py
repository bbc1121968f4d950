"""The hub's HTTP routes, as commands on its own machine use them."""

import http.client
import json
import ssl
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lodger_cli.places import HubPlace, known_hub, paths
from lodger_cli.wire import Refused, WireError

ANSWER_LIMIT_S: Final = 15.0
ANSWER_LIMIT_BYTES: Final = 4 * 1024 * 1024

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class HubApi:
    """The hub of this machine, as its owner."""

    place: HubPlace

    def ask(self, method: str, path: str, body: Json | None = None) -> Json:
        """Raises: WireError with the hub's words."""
        if not self.place.url.startswith("http://"):
            raise WireError(f"the hub at {self.place.url} has no plain address on this machine; start it with --lan")
        return ask_hub(self.place.url, self.place.client_token, method, path, body)


def ask_hub(
    url: str, token: str, method: str, path: str, body: Json | None = None, ca_file: Path | None = None
) -> Json:
    """One call, without a token when it is empty. `ca_file` holds what alone vouches for the hub.

    Raises: Refused with the hub's words; WireError when it does not answer.
    """
    address = urllib.parse.urlsplit(url)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection = _connection(address, ca_file)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        answer = json.loads(response.read(ANSWER_LIMIT_BYTES))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise WireError(f"the hub at {url} does not answer ({error}); is it running? `lodger up` starts it") from error
    finally:
        connection.close()
    if not isinstance(answer, dict) or response.status >= 400:
        words = answer.get("message") if isinstance(answer, dict) else None
        raise Refused(str(words or f"the hub answered {response.status}"))
    return answer


def _connection(address: urllib.parse.SplitResult, ca_file: Path | None) -> http.client.HTTPConnection:
    host = address.hostname or ""
    if address.scheme != "https":
        return http.client.HTTPConnection(host, address.port, timeout=ANSWER_LIMIT_S)
    try:
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except OSError as error:
        raise WireError(f"{ca_file} cannot be used as a certificate: {error}") from error
    return http.client.HTTPSConnection(host, address.port, timeout=ANSWER_LIMIT_S, context=context)


def hub_of_this_machine() -> HubApi:
    """Raises: WireError when none has been started here."""
    place = known_hub(paths())
    if place is None:
        raise WireError("no hub has been started on this machine: start one with `lodger up`")
    return HubApi(place)
