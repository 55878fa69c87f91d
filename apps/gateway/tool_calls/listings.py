"""Listings: the tools of registered servers that an API key may use, screened, and kept for a minute.

A tool can be called only while it is listed: allowed by its server's registration and the key's access rules, told by
its server as it was when it was allowed, and let pass by guardrails. Listings are kept by server; each key is shown of
one what its rules allow.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec
import structlog
from gevent.pool import Pool

from apps.catalog import catalog_cache
from apps.gateway.access.policy import Policy
from apps.gateway.admission import admit
from apps.gateway.admission.worst_case import NO_COST
from apps.gateway.tool_calls import RATE_FAMILY, ToolCaller
from apps.gateway.tool_calls.tool_guard import ToolGuard
from apps.gateway.tool_calls.tool_record import record_listing
from apps.guardrails.scanning.engine import CompiledGuardrails
from apps.kernel.errors import ApiError, Forbidden, NotFound
from apps.kernel.postgres import database
from apps.keys.iam import allows_some_tool, allows_tool
from apps.mcp_servers.access import NO_SERVER, usable_servers
from apps.mcp_servers.actions import is_allowed, target_of
from apps.mcp_servers.client import McpClient, Tool
from apps.mcp_servers.models import McpServer
from apps.mcp_servers.tool_pins import hold_to_pins, joined_names

log = structlog.get_logger(__name__)

# Seconds for which a listing is kept, and after which one that lacks the requested tool is read again.
MAX_AGE, RENEWED_AFTER = 60.0, 5.0
# Listings that a process keeps, and bytes of the largest that is kept.
MAX_KEPT, MAX_BYTES = 200, 256 * 1024
# Seconds that a server may take to list its tools.
PATIENCE: Final = 20.0
# Servers of a joined listing that are asked at a time.
_AT_ONCE: Final = 10


class ServerListing(msgspec.Struct, frozen=True):
    """The tools of one server that may be used, by name, as they were read at a moment of the monotonic clock."""

    tools: dict[str, Tool]
    read_at: float
    # The guardrails that screened them; kept so that no other object gets their id.
    guardrails: CompiledGuardrails | None
    # Tools that are not as they were when they were allowed.
    changed: frozenset[str] = frozenset()


# By server, as it was when it was last changed.
_kept: OrderedDict[tuple[UUID, datetime], ServerListing] = OrderedDict()


def find_servers(policy: Policy) -> list[McpServer]:
    """Return the servers that a key may use, by name. Raises DatabaseError."""
    return _read_servers(policy)


def find_server(policy: Policy, name: str) -> McpServer:
    """Return the server of this name that a key may use. Raises NotFound, DatabaseError."""
    found = _read_servers(policy, [name])
    if not found:
        raise NotFound(NO_SERVER)
    return found[0]


def _read_servers(policy: Policy, names: list[str] | None = None) -> list[McpServer]:
    servers = database.read(lambda: usable_servers(policy.organization_id, policy.project_id, names), brief=True)
    return [server for server in servers if allows_some_tool(policy.tool_rules, server.name)]


def list_tools(policy: Policy, server: McpServer, caller: ToolCaller) -> ServerListing:
    """Return a server's tools that may be used. Raises McpServerFailed, RateLimited, PaymentRequired, Overloaded."""
    known = _kept.get(_name_of(server))
    if known is not None and known.guardrails is policy.guardrails and time.monotonic() - known.read_at < MAX_AGE:
        _kept.move_to_end(_name_of(server))
        return _within_rules(policy, server, known)
    return _read(policy, server, caller)


def require_allowed(policy: Policy, server: McpServer, tool: str) -> None:
    """Hold a tool to the access rules of a key. Raises NotFound."""
    if not allows_tool(policy.tool_rules, server.name, tool):
        raise _no_tool(server)


def _within_rules(policy: Policy, server: McpServer, listing: ServerListing) -> ServerListing:
    """Return a listing without the tools that the key's access rules keep from it."""
    if not policy.tool_rules:
        return listing
    return msgspec.structs.replace(
        listing,
        tools={name: tool for name, tool in listing.tools.items() if allows_tool(policy.tool_rules, server.name, name)},
        changed=frozenset(name for name in listing.changed if allows_tool(policy.tool_rules, server.name, name)),
    )


def _no_tool(server: McpServer) -> NotFound:
    return NotFound(f"There is no tool of this name that may be used at the MCP server {server.name}", param="name")


def find_tool(policy: Policy, server: McpServer, name: str, caller: ToolCaller, *, joined: bool = False) -> Tool:
    """Return a tool that may be called, by its name; by that among the tools of all servers where it is `joined`.

    Raises NotFound; Forbidden (`mcp_tool_changed`); McpServerFailed, Overloaded.
    """
    listing = list_tools(policy, server, caller)
    tool = _find(listing, server, name, joined)
    if tool is None and name in (joined_names(server.name, listing.changed) if joined else listing.changed):
        raise Forbidden(
            f"A tool of the MCP server {server.name} has changed since it was allowed; an admin must look at it again",
            code="mcp_tool_changed",
            param="name",
        )
    if tool is None and time.monotonic() - listing.read_at > RENEWED_AFTER:
        # The server may have it since.
        tool = _find(_read(policy, server, caller), server, name, joined)
    if tool is None:
        raise _no_tool(server)
    return tool


def list_all(policy: Policy, servers: Iterable[McpServer], caller: ToolCaller) -> dict[str, ServerListing]:
    """Return the listings of several servers by name; a server that fails is left out, unless all of them do.

    Raises as `list_tools` does.
    """

    def one(server: McpServer) -> tuple[str, ServerListing | ApiError]:
        try:
            return server.name, list_tools(policy, server, caller)
        except ApiError as error:
            log.info("mcp.left_out", server_id=str(server.id), code=error.code)
            return server.name, error

    answers = Pool(_AT_ONCE).map(one, list(servers))
    found = {name: answer for name, answer in answers if isinstance(answer, ServerListing)}
    failures = [answer for _, answer in answers if isinstance(answer, ApiError)]
    if failures and not found:
        raise failures[0]
    return found


def _find(listing: ServerListing, server: McpServer, name: str, joined: bool) -> Tool | None:
    own = joined_names(server.name, listing.tools).get(name, "") if joined else name
    return listing.tools.get(own)


def forget_all() -> None:
    """Forget all listings, so that each is read again."""
    _kept.clear()


def _read(policy: Policy, server: McpServer, caller: ToolCaller) -> ServerListing:
    # For a caller that is refused no server is called; the admission that follows detects an outdated policy.
    admit.check(policy, catalog_cache.current(), caller.token, NO_COST, rate_family=RATE_FAMILY, free=False)
    with McpClient(target_of(server, cdn_loop=caller.cdn_loop, at_most=PATIENCE)) as client:
        listed = client.list_tools()
    kept, changed = hold_to_pins(server, [tool for tool in listed if is_allowed(server, tool.name)])
    guard = ToolGuard(policy)
    shown = guard.screen_tools(kept)
    if guard.violations:
        record_listing(policy, server, caller, guard.violations)
    listing = ServerListing({tool.name: tool for tool in shown}, time.monotonic(), policy.guardrails, changed)
    _keep(server, listing)
    return _within_rules(policy, server, listing)


def _keep(server: McpServer, listing: ServerListing) -> None:
    name = _name_of(server)
    _kept.pop(name, None)
    if len(msgspec.json.encode([tool.definition for tool in listing.tools.values()])) <= MAX_BYTES:
        _kept[name] = listing
        while len(_kept) > MAX_KEPT:
            _kept.popitem(last=False)


def _name_of(server: McpServer) -> tuple[UUID, datetime]:
    return server.id, server.updated_at
