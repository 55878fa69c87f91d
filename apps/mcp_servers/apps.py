"""Django's registration of the app."""

from django.apps import AppConfig


class McpServersConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.mcp_servers"
    label = "mcp_servers"
    verbose_name = "MCP servers"
