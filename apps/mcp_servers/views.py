"""Views of MCP servers, `/mcp-servers`: parse, act or query, present."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.rest.describe import described, message_field
from apps.mcp_servers import actions
from apps.mcp_servers.access import access_server, access_servers
from apps.mcp_servers.serializers import (
    NewServerQuery,
    NewServerShape,
    ServerChangesShape,
    ServerShape,
    ServersQuery,
    ToolShape,
    new_server,
)
from apps.organizations.access import access_organization
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.models import Role


class McpServers(MemberEndpoint):
    """`POST /mcp-servers`, `GET /mcp-servers`."""

    def prepare(self) -> None:
        """Ask the server for its tools: before anything is written, so that nothing waits for it."""
        fields = self.read(NewServerShape)
        self.organization, _ = access_organization(self.user, fields.pop("organization_id"), Role.ADMIN)
        self.given = new_server(fields)
        query = self.read_query(NewServerQuery)
        self.pins = actions.check_server(organization=self.organization, given=self.given, **query)

    @described({"mcpServer": ServerShape()}, body=NewServerShape, query=NewServerQuery, refuses=(403, 404))
    def post(self, request: Request) -> Response:
        """Register an MCP server, whose tools the organization's API keys can use at `/mcp/{name}` and `/mcp/all`."""
        server = actions.create_server(organization=self.organization, checked=self.given, pins=self.pins)
        return Response({"mcpServer": ServerShape(server).data})

    @described({"mcpServers": ServerShape(many=True)}, query=ServersQuery, refuses=(403, 404))
    def get(self, request: Request) -> Response:
        """List an organization's MCP servers, by name."""
        servers = access_servers(self.user, **self.read_query(ServersQuery))
        return Response({"mcpServers": ServerShape(servers, many=True).data})


class OneMcpServer(MemberEndpoint):
    """`PATCH /mcp-servers/{id}`, `DELETE /mcp-servers/{id}`."""

    @described({"mcpServer": ServerShape()}, body=ServerChangesShape, refuses=(403, 404))
    def patch(self, request: Request, server_id: str) -> Response:
        """Change what an MCP server may be used for, by whom, and its credentials; its address is for good."""
        server = access_server(self.user, server_id)
        changed = actions.change_server(server=server, changes=self.read(ServerChangesShape))
        return Response({"mcpServer": ServerShape(changed).data})

    @described({"message": message_field()}, refuses=(403, 404))
    def delete(self, request: Request, server_id: str) -> Response:
        """Remove an MCP server and erase its credentials."""
        actions.delete_server(server=access_server(self.user, server_id))
        return Response({"message": "MCP server deleted"})


class McpServerTools(MemberEndpoint):
    """`GET /mcp-servers/{id}/tools`."""

    @described({"tools": ToolShape(many=True)}, refuses=(403, 404))
    def get(self, request: Request, server_id: str) -> Response:
        """Ask an MCP server for its tools, those that are not allowed included."""
        server = access_server(self.user, server_id)
        return Response({"tools": ToolShape(actions.look_at_tools(server=server), many=True).data})
