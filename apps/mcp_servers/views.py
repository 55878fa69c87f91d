"""Views of MCP servers, `/mcp-servers`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.rest.endpoint import described
from apps.mcp_servers import actions
from apps.mcp_servers.access import SERVERS
from apps.mcp_servers.models import McpServer
from apps.mcp_servers.serializers import NewServerShape, ServerChangesShape, ServerShape, ToolShape, new_server
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.integrations.endpoints import Create, Kind, ListEndpoint, LiveQuery, OneEndpoint, documented
from apps.organizations.models import Organization


def _check(organization: Organization, fields: Mapping[str, Any], *, live: bool) -> Create[McpServer]:
    given = new_server(fields)
    pins = actions.check_server(organization=organization, given=given, live=live)
    return partial(actions.create_server, organization=organization, checked=given, pins=pins)


def _change(server: McpServer, fields: Mapping[str, Any]) -> McpServer:
    return actions.change_server(server=server, changes=fields)


KIND = Kind(
    table=SERVERS,
    name="mcpServer",
    plural="mcpServers",
    shape=ServerShape,
    new=NewServerShape,
    changes=ServerChangesShape,
    query=LiveQuery,
    check=_check,
    change=_change,
)


@documented(
    post="Register an MCP server, whose tools the organization's API keys can use at `/mcp/{name}` and `/mcp/all`.",
    get="List an organization's MCP servers, by name.",
)
class McpServers(ListEndpoint):
    """`POST /mcp-servers`, `GET /mcp-servers`."""

    kind = KIND


@documented(
    patch="Change what an MCP server may be used for, by whom, and its credentials; its address is for good.",
    delete="Remove an MCP server and erase its credentials.",
)
class OneMcpServer(OneEndpoint):
    """`PATCH /mcp-servers/{id}`, `DELETE /mcp-servers/{id}`."""

    kind = KIND


class McpServerTools(MemberEndpoint):
    """`GET /mcp-servers/{id}/tools`."""

    @described({"tools": ToolShape(many=True)}, refuses=(403, 404))
    def get(self, request: Request, server_id: str) -> Response:
        """Ask an MCP server for its tools, those that are not allowed included."""
        server = SERVERS.access(self.user, server_id)
        return Response({"tools": ToolShape(actions.look_at_tools(server=server), many=True).data})
