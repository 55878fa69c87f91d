"""MCP servers in the admin: seen, switched on and off, removed; registered by organizations alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin

from apps.kernel.admin import MadeElsewhereAdmin
from apps.mcp_servers import actions
from apps.mcp_servers.models import McpServer
from apps.mcp_servers.server_buttons import delete_server
from apps.organizations.admin_buttons import ButtonsAdmin
from apps.organizations.audited_admin import ActingAdmin
from apps.organizations.organization_tabs import OrganizationLink


@admin.register(McpServer)
class McpServerAdmin(OrganizationLink, ButtonsAdmin, MadeElsewhereAdmin, ActingAdmin):
    """Servers of tools that organizations registered."""

    thing = "mcp_server"
    actions_detail = ("delete_server",)
    delete_server = delete_server
    list_display = ("name", "url", "masked_token", "organization_link", "status", "created_at")
    list_filter = ("status",)
    list_select_related = ("organization",)
    search_fields = ("id__exact", "name", "organization__name")
    sortable_by = ()
    ordering = ("-id",)
    # The address is where the credentials are sent: whoever could change it could have them.
    readonly_fields = (
        *("id", "organization", "name", "url", "masked_token", "header_names", "allowed_tools", "project_ids"),
        *("timeout_seconds", "created_at", "updated_at"),
    )
    fields = (*readonly_fields, "status")
    help_texts = {
        "url": "Where it is asked, with the organization's credentials.",
        "masked_token": "The last characters; empty without a credential. It is kept encrypted and never shown.",
        "header_names": "Extra headers that it is sent; their values are kept encrypted and never shown.",
        "timeout_seconds": "Seconds that it may take for one answer.",
        "name": "As in /mcp/<name>.",
        "allowed_tools": "Tools that may be listed and called; null: all of them, an empty list: none.",
        "project_ids": "Projects whose keys may use it; null: every project's, an empty list: none.",
        "status": "Nobody can use an inactive one. Remove it with the button above.",
    }

    def change_row(self, row: McpServer, changes: Mapping[str, Any]) -> None:
        """Switch a server on or off; one that is to be deleted loses its credentials too."""
        if changes.get("status") == McpServer.Status.DELETED:
            actions.delete_server(server=row)
        else:
            actions.change_server(server=row, changes=changes)
