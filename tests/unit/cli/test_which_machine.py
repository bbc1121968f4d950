"""`lodger chat --machine NAME`: a machine that is away is another matter than a name nobody has, or that two have."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lodger_cli.chat import _find_machine
from lodger_cli.places import HubPlace
from lodger_cli.terminal import Exit, failure_code
from lodger_cli.wire import WireError

MACHINES = [("d-1", "attic", "c-1"), ("d-2", "cellar", None), ("d-3", "twin", "c-3"), ("d-4", "twin", "c-4")]


class Environments(BaseHTTPRequestHandler):
    """The hub's list of machines, and nothing else of it."""

    def do_GET(self) -> None:
        listed = [{"deviceId": one, "connectionName": name, "connectionId": link} for one, name, link in MACHINES]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"connections": listed}).encode())

    def log_message(self, *_: object) -> None:
        """Nothing of it belongs among what the tests print."""


@pytest.fixture
def hub() -> Iterator[HubPlace]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Environments) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield HubPlace(f"http://127.0.0.1:{server.server_port}", "a-token", Path("/nowhere"))
        server.shutdown()
        serving.join()


@pytest.mark.parametrize(("name", "link"), [("attic", "c-1"), ("d-1", "c-1"), ("d-4", "c-4")])
def test_one_is_found_by_name_or_id(hub: HubPlace, name: str, link: str) -> None:
    assert _find_machine(hub, name) == link


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("cellar", Exit.UNREACHABLE, "cellar is not online"),
        ("d-2", Exit.UNREACHABLE, "d-2 is not online"),
        ("nobody", Exit.REFUSED, "no machine is called nobody"),
        ("twin", Exit.REFUSED, "several machines are called twin"),
    ],
)
def test_what_is_wrong_has_its_exit_code(hub: HubPlace, name: str, code: Exit, words: str) -> None:
    with pytest.raises(WireError, match=words) as raised:
        _find_machine(hub, name)
    assert failure_code(raised.value, Exit.REFUSED) is code
    assert "attic (d-1)" in str(raised.value)
