"""Serializers of MCP servers: fields and limits of the management API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from apps.kernel.ids import find_id
from apps.kernel.rest.serializers import (
    CamelModelSerializer,
    CamelSerializer,
    ChoiceField,
    IntegerField,
    NameField,
    TextField,
)
from apps.mcp_servers.actions import NewServer
from apps.mcp_servers.client import MAX_NAME, MAX_TOOLS
from apps.mcp_servers.credentials import Credentials
from apps.mcp_servers.models import MAX_TIMEOUT, MIN_TIMEOUT, TIMEOUT, McpServer
from apps.mcp_servers.tool_pins import ALL, SERVER_NAME

# Projects in a server's list.
MAX_PROJECTS = 200
# Characters of a token.
MAX_TOKEN = 10_000


class _NamesField(serializers.ListField):
    """Texts, each once."""

    def to_internal_value(self, data: Any) -> list[Any]:
        """Return them in their order. Raises ValidationError."""
        return list(dict.fromkeys(super().to_internal_value(data)))


class _ProjectsField(_NamesField):
    """Ids of projects, as ids are written."""

    def to_internal_value(self, data: Any) -> list[Any]:
        """Return them in their order. Raises ValidationError."""
        found = [find_id(one) for one in super().to_internal_value(data)]
        if None in found:
            raise serializers.ValidationError("Must be ids of projects")
        return list(dict.fromkeys(map(str, found)))


class _DigestsField(serializers.DictField):
    """Digests by the names of tools."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        """Return them. Raises ValidationError."""
        found: dict[str, Any] = super().to_internal_value(data)
        if not 0 < len(found) <= MAX_TOOLS:
            raise serializers.ValidationError(f"Must be 1 to {MAX_TOOLS} tools")
        if any(not 0 < len(name) <= MAX_NAME or not name.isprintable() for name in found):
            raise serializers.ValidationError(f"Names must be 1 to {MAX_NAME} printable characters")
        return found


class _SettingsShape(CamelSerializer):
    """Changeable settings of a server; for all but the timeout, null means none or all."""

    token = TextField(max_length=MAX_TOKEN, required=False, allow_null=True)
    headers = serializers.DictField(
        child=serializers.CharField(trim_whitespace=False), required=False, allow_null=True, help_text="By name"
    )
    allowed_tools = _NamesField(
        child=TextField(max_length=MAX_NAME), required=False, allow_null=True, max_length=MAX_TOOLS
    )
    project_ids = _ProjectsField(
        child=TextField(max_length=100), required=False, allow_null=True, max_length=MAX_PROJECTS
    )

    def validate_token(self, value: str | None) -> str | None:
        """Refuse characters that a header cannot hold. Raises ValidationError."""
        if value is not None and not (value.isascii() and value.isprintable()):
            raise serializers.ValidationError("Must be printable ASCII characters")
        return value


class NewServerShape(_SettingsShape):
    """Body of `POST /mcp-servers`."""

    organization_id = TextField(max_length=100)
    name = NameField(max_length=40)
    url = TextField(max_length=500)
    timeout_seconds = IntegerField(low=MIN_TIMEOUT, high=MAX_TIMEOUT, default=TIMEOUT)

    def validate_name(self, value: str) -> str:
        """Check the name, which is part of paths and of tool names. Raises ValidationError."""
        if not SERVER_NAME.fullmatch(value):
            raise serializers.ValidationError("Must be 1 to 40 of a-z, 0-9 and -")
        if value == ALL:
            raise serializers.ValidationError(f"{ALL} is reserved for all servers together")
        return value


class ServerChangesShape(_SettingsShape):
    """Body of `PATCH /mcp-servers/{id}`; fields that are absent keep their values."""

    accepted_tools = _DigestsField(
        child=serializers.RegexField(r"^[0-9a-f]{64}\Z", error_messages={"invalid": "Must be a tool's digest"}),
        required=False,
        help_text="Changed tools to accept in their current version: their `digest` by name",
    )

    status = ChoiceField([McpServer.Status.ACTIVE, McpServer.Status.INACTIVE], required=False)
    timeout_seconds = IntegerField(low=MIN_TIMEOUT, high=MAX_TIMEOUT, required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Require the status if nothing else changes. Raises ValidationError."""
        if not attrs:
            raise serializers.ValidationError({"status": ["Required"]})
        return attrs


class ServerShape(CamelModelSerializer):
    """An MCP server with masked credentials."""

    header_names = serializers.ListField(child=serializers.CharField(), read_only=True)
    allowed_tools = serializers.ListField(child=serializers.CharField(), read_only=True, allow_null=True)
    changed_tools = serializers.ListField(
        child=serializers.CharField(),
        read_only=True,
        help_text="Tools that have changed since they were allowed, and are blocked until they are accepted",
    )
    project_ids = serializers.ListField(child=serializers.CharField(), read_only=True, allow_null=True)

    class Meta:
        model = McpServer
        fields = read_only_fields = [
            "id",
            "name",
            "url",
            "status",
            "organization_id",
            "masked_token",
            "header_names",
            "allowed_tools",
            "changed_tools",
            "project_ids",
            "timeout_seconds",
            "created_at",
            "updated_at",
        ]


class ToolShape(CamelSerializer):
    """A tool of a server; `isAllowed` tells whether it may be called, `isChanged` that it has changed since it was
    allowed and is blocked; `digest` identifies its complete definition."""

    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    is_allowed = serializers.BooleanField()
    is_changed = serializers.BooleanField()
    digest = serializers.CharField()
    input_schema = serializers.DictField()


def new_server(fields: Mapping[str, Any]) -> NewServer:
    """Return the server described by a body of `NewServerShape`."""
    return NewServer(
        name=fields["name"],
        url=fields["url"],
        credentials=Credentials(fields.get("token") or "", fields.get("headers") or {}),
        allowed_tools=fields.get("allowed_tools"),
        project_ids=fields.get("project_ids"),
        timeout_seconds=fields["timeout_seconds"],
    )
