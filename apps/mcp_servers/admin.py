"""MCP servers in the admin: view, switch on and off, delete with a button; only organizations register servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin

from apps.mcp_servers import actions
from apps.mcp_servers.access import SERVERS
from apps.mcp_servers.models import McpServer
from apps.organizations.integrations.integration_admin import IntegrationAdmin, delete_button


@admin.register(McpServer)
class McpServerAdmin(IntegrationAdmin):
    """MCP servers of organizations."""

    thing = SERVERS.thing
    actions_detail = ("delete_server",)
    delete_server = delete_button(
        SERVERS,
        "delete_server",
        text="{row} can no longer be used, and its credentials are erased. This cannot be undone.",
    )
    list_display = ("name", "url", "masked_token", "organization_link", "status", "created_at")
    list_filter = ("status",)
    search_fields = ("id__exact", "name", "organization__name")
    # The credentials are sent to this address, so changing it would reveal them.
    readonly_fields = (
        *("id", "organization", "name", "url", "masked_token", "header_names", "allowed_tools", "project_ids"),
        *("timeout_seconds", "created_at", "updated_at"),
    )
    fields = (*readonly_fields, "status")
    help_texts = {
        "url": "Its address, to which the organization's credentials are sent.",
        "masked_token": "The last characters; empty without a credential. It is stored encrypted and never shown.",
        "header_names": "Names of extra headers; their values are stored encrypted and never shown.",
        "timeout_seconds": "Timeout of one call in seconds.",
        "name": "As in /mcp/NAME.",
        "allowed_tools": "Tools that may be listed and called; null: all of them, an empty list: none.",
        "project_ids": "Projects whose keys may use it; null: every project's, an empty list: none.",
        "status": "An inactive server cannot be used. Remove it with the button above.",
    }

    def change_row(self, row: McpServer, changes: Mapping[str, Any]) -> None:
        """Switch a server on or off."""
        actions.change_server(server=row, changes=changes)
