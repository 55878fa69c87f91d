"""Names of tools across servers, and pins: the digest of each tool when it was allowed.

A name is `server__tool`, at most 64 characters, unique. A server's name has no underscore, so the part before the first
two is the server. Model providers accept 64 letters, digits, hyphens and underscores: a tool whose name does not fit
gets its beginning and a digest of the whole.

A server may show a harmless description until it is trusted, and another one later ("rug pull"). So the digest of a
tool's complete definition is stored when an admin allows it, or when it is first listed; a tool with another digest is
neither listed nor called until an admin accepts it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from hashlib import sha256
from typing import Final
from uuid import UUID

import msgspec
import structlog

from apps.kernel.postgres import database
from apps.kernel.postgres.rows import find_row
from apps.mcp_servers.access import NO_SERVER
from apps.mcp_servers.client import Tool
from apps.mcp_servers.models import McpServer
from apps.organizations.journal import audit

# Valid names of servers; `all` is reserved.
SERVER_NAME: Final = re.compile(r"[a-z0-9-]{1,40}")
ALL: Final = "all"
SEPARATOR: Final = "__"
# Characters of a joined name.
MAX_JOINED_NAME: Final = 64
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST: Final = 12
# A name that looks shortened is shortened too, so that it cannot clash with a shortened one.
_SHORTENED: Final = re.compile(rf".*-[0-9a-f]{{{_DIGEST}}}", re.DOTALL)


def joined_name(server: str, tool: str) -> str:
    """Return the joined name of a server's tool."""
    room = MAX_JOINED_NAME - len(server) - len(SEPARATOR)
    if len(tool) <= room and _PLAIN.fullmatch(tool) and not _SHORTENED.fullmatch(tool):
        return f"{server}{SEPARATOR}{tool}"
    digest = sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    head = _OTHER.sub("_", tool[: room - _DIGEST - 1])
    return f"{server}{SEPARATOR}{head}-{digest}"


def joined_names(server: str, tools: Iterable[str]) -> dict[str, str]:
    """Return a server's tools by their joined names. If two have the same one, the first keeps it."""
    found: dict[str, str] = {}
    for tool in tools:
        found.setdefault(joined_name(server, tool), tool)
    return found


def server_of(joined: str) -> str:
    """Return the server in a joined name; empty if there is none."""
    server, separator, _ = joined.partition(SEPARATOR)
    return server if separator else ""


log = structlog.get_logger(__name__)

# Pins of one server: pins of removed tools stay, so that a tool cannot leave and return changed. At this number, new
# tools are blocked too.
MAX_PINS: Final = 1_000


def digest_of(tool: Tool) -> str:
    """Return the digest of a tool's definition: name, descriptions, schemas, annotations."""
    return sha256(msgspec.json.encode(tool.definition, order="deterministic")).hexdigest()


def pins_of(tools: Iterable[Tool]) -> dict[str, str]:
    """Return the digests of tools by name."""
    return {tool.name: digest_of(tool) for tool in tools}


def changed_of(server: McpServer, digests: Mapping[str, str]) -> frozenset[str]:
    """Return the names of tools that have changed since they were allowed."""
    return frozenset(name for name, digest in digests.items() if server.tool_pins.get(name, digest) != digest)


def hold_to_pins(server: McpServer, tools: Collection[Tool]) -> tuple[list[Tool], frozenset[str]]:
    """Return the unchanged tools, and the names of the changed ones.

    New tools are pinned; a change is recorded in the audit log, once until it is accepted. Raises NotFound for a server
    that was deleted meanwhile, DatabaseError.
    """
    digests = pins_of(tools)
    pins: Mapping[str, str] = server.tool_pins
    unknown = digests.keys() - pins.keys() if len(pins) < MAX_PINS else ()
    if unknown or changed_of(server, digests) - set(server.changed_tools):
        pins = database.write(partial(_write, server.pk, digests))
    held = frozenset(name for name, digest in digests.items() if pins.get(name) != digest)
    return [tool for tool in tools if tool.name not in held], held


def accept(row: McpServer, digests: Mapping[str, str]) -> None:
    """Accept tools in their current version, on a row that the caller saves."""
    row.tool_pins = {**row.tool_pins, **digests}
    row.changed_tools = [name for name in row.changed_tools if name not in digests]


def forget_others(row: McpServer, names: Collection[str]) -> None:
    """Forget tools that are no longer allowed, on a row that the caller saves: allowed again they are new."""
    row.tool_pins = {name: digest for name, digest in row.tool_pins.items() if name in names}
    row.changed_tools = [name for name in row.changed_tools if name in names]


def _write(server_id: UUID, digests: Mapping[str, str]) -> Mapping[str, str]:
    """Pin new tools and record changed ones; return the pins. Pins of concurrent writers win."""
    row = find_row(McpServer.objects.select_for_update(no_key=True), server_id, NO_SERVER)
    unknown = [name for name in digests if name not in row.tool_pins]
    first = {name: digests[name] for name in unknown[: max(MAX_PINS - len(row.tool_pins), 0)]}
    changed = sorted(changed_of(row, digests) - set(row.changed_tools))
    pins = {**row.tool_pins, **first}
    # `updated_at` stays, because nothing has changed for users of the server.
    McpServer.objects.filter(pk=row.pk).update(tool_pins=pins, changed_tools=[*row.changed_tools, *changed])
    if changed:
        log.warning("mcp.tools_changed", server_id=str(row.pk), tools=changed)
        details = {"name": row.name, "tools": changed}
        audit.record("mcp_server.tools_changed", organization_id=row.organization_id, resource=row, details=details)
    return pins
