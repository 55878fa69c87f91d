"""Actions on MCP servers: register, change, each in one transaction; and listing a server's tools.

A server is tested before it is stored. Its address cannot be changed, because that would redirect the credentials,
which are stored encrypted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import transaction

from apps.kernel.errors import InvalidRequest, NotFound
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.kernel.secrets.encryption import UnreadableSecretError
from apps.keys.secrets import last_four_of
from apps.keys.ssrf_guard import check_url_field
from apps.mcp_servers.access import SERVERS
from apps.mcp_servers.client import McpClient, Tool
from apps.mcp_servers.credentials import Credentials, decrypt_credentials, encrypt_credentials, header_fault
from apps.mcp_servers.http_exchange import McpServerFailed, McpTarget
from apps.mcp_servers.models import McpServer
from apps.mcp_servers.tool_pins import MAX_PINS, accept, changed_of, forget_others, pins_of
from apps.organizations.journal import audit
from apps.organizations.models import Organization, Project
from apps.organizations.outside_calls import outside_call

# Servers of one organization: a joined list calls them all.
MAX_SERVERS = 20
_CREDENTIALS = frozenset({"token", "headers"})
# Seconds that a server may take to list its tools on a page.
PATIENCE = 15


@dataclass(frozen=True, slots=True)
class NewServer:
    """A new server; `allowed_tools` and `project_ids` are None for all."""

    name: str
    url: str
    credentials: Credentials = field(repr=False)
    allowed_tools: list[str] | None
    project_ids: list[str] | None
    timeout_seconds: int


def check_server(*, organization: Organization, given: NewServer, live: bool) -> dict[str, str]:
    """Validate a new server; if `live`, list its tools and return the digests of the allowed ones (`tool_pins`).

    Raises InvalidFields for an invalid field, InvalidRequest with the server's error if it does not answer correctly.
    Takes as long as the server does.
    """
    _require_headers(given.credentials)
    _require_projects(organization.id, given.project_ids)
    with outside_call(organization.id):
        check_url_field(given.url, "url", organization.id)
        if not live:
            return {}
        seconds = min(given.timeout_seconds, PATIENCE)
        tools = _ask(McpTarget(given.url, given.credentials, seconds, owner=organization.id))
    return pins_of(tool for tool in tools if given.allowed_tools is None or tool.name in given.allowed_tools)


def create_server(*, organization: Organization, checked: NewServer, pins: Mapping[str, str]) -> McpServer:
    """Store a validated server with encrypted credentials and the digests of its tools.

    Raises InvalidFields for a name in use, InvalidRequest at the limit of servers; NotFound if the organization was
    deleted meanwhile.
    """
    columns: dict[str, Any] = {"name": checked.name, "url": checked.url, "allowed_tools": checked.allowed_tools}
    columns |= {"project_ids": checked.project_ids, "timeout_seconds": checked.timeout_seconds}
    columns |= {"tool_pins": dict(pins), **_sealed(checked.credentials)}
    has_token = bool(checked.credentials.token)
    return SERVERS.create(organization, columns, max_rows=MAX_SERVERS, hasToken=has_token)


@transaction.atomic
def change_server(*, server: McpServer, changes: Mapping[str, Any]) -> McpServer:
    """Set `status`, `allowed_tools`, `project_ids`, `timeout_seconds`, and the credentials `token` and `headers`.

    `accepted_tools` are digests by name of changed tools that a person has reviewed.

    Raises InvalidFields, NotFound if it was deleted meanwhile.
    """
    row = SERVERS.lock(server)
    columns = {name: value for name, value in changes.items() if name not in {*_CREDENTIALS, "accepted_tools"}}
    _require_projects(row.organization_id, columns.get("project_ids"))
    details = audit.changes_of(row, columns)
    if not _CREDENTIALS.isdisjoint(changes):
        credentials = _replaced(row, changes)
        _require_headers(credentials)
        columns |= _sealed(credentials)
        details["credentials"] = "replaced"
    allowed = columns.get("allowed_tools", row.allowed_tools)
    if allowed is not None:
        forget_others(row, allowed)
    if accepted := changes.get("accepted_tools"):
        accept(row, accepted)
        details["acceptedTools"] = sorted(accepted)
        if len(row.tool_pins) > MAX_PINS:
            raise InvalidFields([Issue("acceptedTools", f"Maximum {MAX_PINS} tools are known; allow tools by name")])
    SERVERS.update(row, columns, details, changed=("tool_pins", "changed_tools"))
    return row


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool of a server, whether it may be called, and whether it is blocked because it changed since it was
    allowed."""

    name: str
    definition: dict[str, Any]
    is_allowed: bool
    is_changed: bool
    digest: str

    @property
    def description(self) -> str:
        """Its description; may be empty."""
        return str(self.definition.get("description", ""))

    @property
    def input_schema(self) -> dict[str, Any]:
        """The schema of its arguments."""
        schema: dict[str, Any] = self.definition["inputSchema"]
        return schema

    @property
    def text(self) -> str:
        """Its complete definition as text, for review."""
        return json.dumps(self.definition, ensure_ascii=False, indent=2)


def look_at_tools(*, server: McpServer) -> list[ListedTool]:
    """Return the current tools of a server, also those that are not allowed; nothing changes.

    Raises InvalidRequest with the server's error if it does not answer correctly, NotFound for a deleted server.
    """
    if server.status == McpServer.Status.DELETED:
        raise NotFound(SERVERS.missing)
    try:
        target = target_of(server, at_most=PATIENCE)
    except McpServerFailed as error:
        raise InvalidRequest(error.message) from error
    with outside_call(server.organization_id):
        tools = _ask(target)
    digests = pins_of(tools)
    changed = changed_of(server, digests)
    return [
        ListedTool(
            name=tool.name,
            definition=tool.definition,
            is_allowed=is_allowed(server, tool.name),
            is_changed=tool.name in changed,
            digest=digests[tool.name],
        )
        for tool in tools
    ]


def is_allowed(server: McpServer, tool: str) -> bool:
    """Return whether a tool of a server may be listed and called."""
    return server.allowed_tools is None or tool in server.allowed_tools


def target_of(server: McpServer, *, cdn_loop: str = "", at_most: float | None = None) -> McpTarget:
    """Return a server's connection data, with `at_most` seconds. Raises McpServerFailed if its credentials are lost."""
    try:
        credentials = decrypt_credentials(bytes(server.encrypted_credentials))
    except UnreadableSecretError as error:
        raise McpServerFailed("No key in ENCRYPTION_KEYS decrypts the MCP server's credentials") from error
    seconds = server.timeout_seconds if at_most is None else min(server.timeout_seconds, at_most)
    return McpTarget(server.url, credentials, seconds, cdn_loop, server.organization_id)


def _ask(target: McpTarget) -> list[Tool]:
    try:
        with McpClient(target) as client:
            return client.list_tools()
    except McpServerFailed as error:
        raise InvalidRequest(error.message, code=error.code, param="url") from error


def _replaced(row: McpServer, changes: Mapping[str, Any]) -> Credentials:
    """Return a server's credentials with the given replacements."""
    try:
        own = decrypt_credentials(bytes(row.encrypted_credentials))
    except UnreadableSecretError:
        # The old ones are lost; only the new ones remain.
        own = Credentials()
    token, headers = changes.get("token", own.token), changes.get("headers", own.headers)
    return Credentials(token or "", headers or {})


def _sealed(credentials: Credentials) -> dict[str, Any]:
    """Return the columns with the credentials."""
    token = credentials.token
    return {
        "encrypted_credentials": encrypt_credentials(credentials),
        "last_four": last_four_of(token),
        "header_names": list(credentials.headers),
    }


def _require_headers(credentials: Credentials) -> None:
    if fault := header_fault(credentials.headers, has_token=bool(credentials.token)):
        raise InvalidFields([Issue("headers", fault)])


def _require_projects(organization_id: UUID, project_ids: list[str] | None) -> None:
    """Raise InvalidFields unless all are ids of the organization's projects."""
    if not project_ids:
        return
    own = Project.objects.filter(organization=organization_id).exclude(status=Project.Status.DELETED)
    known = set(map(str, own.filter(pk__in=[UUID(one) for one in project_ids]).values_list("id", flat=True)))
    if strange := [one for one in project_ids if one not in known]:
        raise InvalidFields([Issue("projectIds", f"{strange[0]}: There is no such project in the organization")])
