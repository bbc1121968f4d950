"""What the program that enters a box's network does with a socket that is none of a box."""

import socket

import pytest

from lodger_daemon.network.inside_sockets import make_inside_sockets, name_servers
from lodger_daemon.network.made_inside import NoSockets


def test_the_machine_s_own_network_is_not_taken_for_a_box_s() -> None:
    """Ports of the machine must not be taken, nor addresses added, whatever a runner hands out."""
    with (
        socket.create_server(("127.0.0.1", 0)) as own,
        pytest.raises(NoSockets, match=r"no socket of a box|not permitted"),
    ):
        make_inside_sockets(own.fileno())


def test_name_servers_are_addresses_elsewhere() -> None:
    assert all(socket.inet_aton(address)[0] != 127 for address in name_servers())
