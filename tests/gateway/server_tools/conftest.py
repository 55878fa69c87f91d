"""A registered server of tools, for the tests of this folder."""

from __future__ import annotations

import pytest

from apps.gateway.tool_calls import listings
from apps.mcp_servers.credentials import Credentials, encrypt_credentials
from apps.mcp_servers.models import McpServer
from tests.support.mcp_stand_in import TOKEN, StandIn, _mcp_server, mcp_server
from tests.support.upstream import Caller

__all__ = ["_mcp_server", "mcp_server"]


@pytest.fixture
def tickets(caller: Caller, mcp_server: StandIn) -> McpServer:
    """The server `tickets` of the caller's organization, before any request to it."""
    listings.forget_all()
    return McpServer.objects.create(
        organization_id=caller.organization_id,
        name="tickets",
        url=mcp_server.url,
        encrypted_credentials=encrypt_credentials(Credentials(TOKEN)),
    )
