"""Which port the server keeps for the sandbox, until it starts and while it is restarted."""

from __future__ import annotations

import socket

import pytest

from apps.sandbox.server import listen
from gateway_project.configuration.server_config import reserve_port
from tests.stack.product import free_port


def test_a_reserved_port_refuses_connections_and_other_servers_until_its_server_listens() -> None:
    preferred = free_port()
    with reserve_port(preferred) as keeper:
        address = keeper.getsockname()
        assert address == ("127.0.0.1", preferred)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=5)
        with pytest.raises(OSError, match="Address already in use"), socket.socket() as other:
            other.bind(address)
        with listen(*address, reuse_port=True), socket.create_connection(address, timeout=5):
            pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=5)


@pytest.mark.parametrize("preferred", [65536, None], ids=["none above the last", "taken"])
def test_another_port_is_reserved_when_the_preferred_one_cannot_be(preferred: int | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        with reserve_port(preferred or taken) as keeper:
            host, port = keeper.getsockname()
            assert (host, port in {taken, 65536}, port > 0) == ("127.0.0.1", False, True)
