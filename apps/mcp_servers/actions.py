"""What can be done to MCP servers: register, change, remove; each one transaction. And asking one for its tools.

Knows that a server is asked before it is kept, and that its address is for good: whoever could change it could have
the credentials sent elsewhere. Must never keep a credential in clear.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction

from apps.kernel import database
from apps.kernel.encryption import UnreadableSecretError
from apps.kernel.errors import InvalidRequest, NotFound
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.keys.ssrf_guard import UnsafeAddressError, resolve_safe_address
from apps.mcp_servers.access import NO_SERVER
from apps.mcp_servers.credentials import Credentials, header_fault, seal, unseal
from apps.mcp_servers.models import McpServer
from apps.mcp_servers.upstream.client import McpClient
from apps.mcp_servers.upstream.failures import McpServerFailed
from apps.mcp_servers.upstream.http_exchange import McpTarget
from apps.mcp_servers.upstream.tools import Tool
from apps.organizations import audit
from apps.organizations.access import NO_ORGANIZATION
from apps.organizations.models import Organization, Project

# Of one organization: a joined list asks them all.
MAX_SERVERS = 20
# Characters; of a shorter credential, four would say too much.
SHORTEST_SHOWN = 12
# Seconds that a server may take to tell its tools to a person who waits for them.
PATIENCE = 15


@dataclass(frozen=True, slots=True)
class NewServer:
    """A server as it was given; `allowed_tools` and `project_ids` are None for all."""

    name: str
    url: str
    credentials: Credentials = field(repr=False)
    allowed_tools: list[str] | None
    project_ids: list[str] | None
    timeout_seconds: int


def check_server(*, organization: Organization, given: NewServer, live: bool) -> None:
    """See that a new server can be kept; when `live`, ask it for its tools.

    Raises InvalidFields for a field that is wrong, InvalidRequest with the server's words when it does not answer as
    it should. Takes as long as the server does.
    """
    _require_headers(given.credentials)
    _require_projects(organization, given.project_ids)
    if "#" in given.url:
        raise InvalidFields([Issue("url", "Must be a URL without a fragment")])
    try:
        resolve_safe_address(given.url)
    except UnsafeAddressError as error:
        raise InvalidFields([Issue("url", str(error))]) from error
    if live:
        database.release_connection()
        _ask(McpTarget(given.url, given.credentials, min(given.timeout_seconds, PATIENCE)))


def create_server(*, organization: Organization, checked: NewServer) -> McpServer:
    """Keep a checked server, its credentials sealed.

    Raises InvalidRequest for a name that is taken, or one server too many; NotFound when the organization was deleted
    meanwhile.
    """
    token = checked.credentials.token
    try:
        with transaction.atomic():
            # Those who register at once wait for each other here, and whoever deletes the organization for them.
            standing = Organization.objects.exclude(status=Organization.Status.DELETED).filter(pk=organization.pk)
            if standing.select_for_update(no_key=True).first() is None:
                raise NotFound(NO_ORGANIZATION)
            living = McpServer.objects.filter(organization=organization).exclude(status=McpServer.Status.DELETED)
            if living.count() >= MAX_SERVERS:
                raise InvalidRequest(f"Maximum {MAX_SERVERS} MCP servers per organization", code="mcp_server_limit")
            server = McpServer.objects.create(
                organization=organization,
                name=checked.name,
                url=checked.url,
                allowed_tools=checked.allowed_tools,
                project_ids=checked.project_ids,
                timeout_seconds=checked.timeout_seconds,
                **_sealed(checked.credentials),
            )
            told: dict[str, Any] = {"name": server.name, "url": server.url, "maskedToken": server.masked_token}
            told |= {"headerNames": server.header_names, "allowedTools": server.allowed_tools}
            told |= {"projectIds": server.project_ids, "timeoutSeconds": server.timeout_seconds}
            _record("create", server, {**told, "hasToken": bool(token)})
            return server
    except IntegrityError as error:
        raise InvalidFields([Issue("name", "Another MCP server has this name")]) from error


@transaction.atomic
def change_server(*, server: McpServer, changes: Mapping[str, Any]) -> McpServer:
    """Set `status`, `allowed_tools`, `project_ids`, `timeout_seconds`, and of the credentials `token` and `headers`.

    Raises InvalidFields, NotFound when it was deleted meanwhile.
    """
    row = _locked(server)
    columns = {name: value for name, value in changes.items() if name not in {"token", "headers"}}
    _require_projects(row.organization, columns.get("project_ids"))
    told = audit.changes_of(row, columns)
    if len(columns) < len(changes):
        credentials = _replaced(row, changes)
        _require_headers(credentials)
        columns |= _sealed(credentials)
        told["credentials"] = "replaced"
    _record("update", row, told)
    for name, value in columns.items():
        setattr(row, name, value)
    row.save(update_fields=[*columns, "updated_at"])
    return row


@transaction.atomic
def delete_server(*, server: McpServer) -> None:
    """End a server; the credentials themselves are erased. Raises NotFound when it already is."""
    row = _locked(server)
    _record("delete", row, {"name": row.name})
    row.status, row.encrypted_credentials, row.last_four = McpServer.Status.DELETED, b"", ""
    row.save(update_fields=["status", "encrypted_credentials", "last_four", "updated_at"])


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool that a server lists, and whether it can be called."""

    name: str
    description: str
    is_allowed: bool
    input_schema: dict[str, Any]


def look_at_tools(*, server: McpServer) -> list[ListedTool]:
    """Return the tools that a server lists now, those that are not allowed included; nothing changes.

    Raises InvalidRequest with the server's words when it does not answer as it should, NotFound for one that is
    deleted.
    """
    if server.status == McpServer.Status.DELETED:
        raise NotFound(NO_SERVER)
    try:
        target = target_of(server, at_most=PATIENCE)
    except McpServerFailed as error:
        raise InvalidRequest(error.message) from error
    database.release_connection()
    return [
        ListedTool(
            tool.name,
            tool.definition.get("description", ""),
            is_allowed(server, tool.name),
            tool.definition["inputSchema"],
        )
        for tool in _ask(target)
    ]


def is_allowed(server: McpServer, tool: str) -> bool:
    """Tell whether a tool of a server may be listed and called."""
    return server.allowed_tools is None or tool in server.allowed_tools


def target_of(server: McpServer, *, cdn_loop: str = "", at_most: float | None = None) -> McpTarget:
    """Return a server as it is asked, in `at_most` seconds. Raises McpServerFailed where its credentials are lost."""
    try:
        credentials = unseal(bytes(server.encrypted_credentials))
    except UnreadableSecretError as error:
        raise McpServerFailed("No key of ENCRYPTION_KEYS opens the MCP server's credentials") from error
    seconds = server.timeout_seconds if at_most is None else min(server.timeout_seconds, at_most)
    return McpTarget(server.url, credentials, seconds, cdn_loop)


def _ask(target: McpTarget) -> list[Tool]:
    try:
        with McpClient(target) as client:
            return client.list_tools()
    except McpServerFailed as error:
        raise InvalidRequest(error.message, code=error.code, param="url") from error


def _replaced(row: McpServer, changes: Mapping[str, Any]) -> Credentials:
    """Return a server's credentials with those that are given in the place of its own."""
    try:
        own = unseal(bytes(row.encrypted_credentials))
    except UnreadableSecretError:
        # They are lost; what is given now is all there is.
        own = Credentials()
    token, headers = changes.get("token", own.token), changes.get("headers", own.headers)
    return Credentials(token or "", headers or {})


def _sealed(credentials: Credentials) -> dict[str, Any]:
    """Return the columns that keep credentials."""
    token = credentials.token
    return {
        "encrypted_credentials": seal(credentials),
        "last_four": token[-4:] if len(token) >= SHORTEST_SHOWN else "",
        "header_names": list(credentials.headers),
    }


def _require_headers(credentials: Credentials) -> None:
    if fault := header_fault(credentials.headers, has_token=bool(credentials.token)):
        raise InvalidFields([Issue("headers", fault)])


def _require_projects(organization: Organization, project_ids: list[str] | None) -> None:
    """Raise InvalidFields unless all are ids of the organization's projects."""
    if not project_ids:
        return
    own = Project.objects.filter(organization=organization).exclude(status=Project.Status.DELETED)
    known = set(map(str, own.filter(pk__in=[UUID(one) for one in project_ids]).values_list("id", flat=True)))
    if strange := [one for one in project_ids if one not in known]:
        raise InvalidFields([Issue("projectIds", f"{strange[0]}: There is no such project in the organization")])


def _record(verb: str, server: McpServer, details: dict[str, Any]) -> None:
    audit.record(f"mcp_server.{verb}", organization_id=server.organization_id, resource=server, details=details)


def _locked(server: McpServer) -> McpServer:
    living = McpServer.objects.select_for_update(no_key=True, of=("self",)).exclude(status=McpServer.Status.DELETED)
    row = living.filter(pk=server.pk).select_related("organization").first()
    if row is None:
        raise NotFound(NO_SERVER)
    return row
