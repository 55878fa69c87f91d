"""Sessions at MCP servers, kept between the calls of one caller's session, in whichever worker: never shared.

A session at a server is found by the server as it was when it was last changed, the API key, and the caller's own
session. A lost session never fails a call: a new one begins.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import msgspec
import structlog
from redis.exceptions import RedisError

from apps.gateway.access.policy import Policy
from apps.gateway.tool_calls.caller import ToolCaller
from apps.kernel.secrets.content_encryption import decrypt_content, encrypt_content
from apps.kernel.secrets.encryption import UnreadableSecretError
from apps.kernel.valkey.cache_store import CacheShare
from apps.mcp_servers.models import McpServer
from apps.mcp_servers.upstream.client import UpstreamSession

log = structlog.get_logger(__name__)

# Seconds without a call after which a session is forgotten here.
KEPT_FOR: Final = 1_800


def find_session(policy: Policy, server: McpServer, caller: ToolCaller) -> UpstreamSession | None:
    """Return the session to go on with at a server; None to begin another."""
    if not caller.session_scope:
        return None
    name = _name_of(policy, server, caller)
    try:
        share = _share_of(policy)
        kept = share.read(name)
        if kept is None:
            return None
        share.prolong([name], KEPT_FOR)
        return msgspec.json.decode(decrypt_content(kept, name), type=UpstreamSession)
    except (RedisError, UnreadableSecretError, msgspec.MsgspecError) as error:
        log.info("mcp.session_lost", error=type(error).__name__)
        return None


def keep_session(policy: Policy, server: McpServer, caller: ToolCaller, session: UpstreamSession) -> None:
    """Keep a session for the caller's further calls."""
    name = _name_of(policy, server, caller)
    try:
        _share_of(policy).keep([(name, encrypt_content(msgspec.json.encode(session), name))], KEPT_FOR)
    except RedisError as error:
        log.info("mcp.session_not_kept", error=type(error).__name__)


def _share_of(policy: Policy) -> CacheShare:
    return CacheShare.of(policy.organization_id, policy.plan)


def _name_of(policy: Policy, server: McpServer, caller: ToolCaller) -> str:
    which = f"{server.id}\n{server.updated_at.isoformat()}"
    whose = f"{policy.organization_id}\n{policy.api_key_id}\n{caller.session_scope}"
    digest = sha256("\n".join((which, whose)).encode()).hexdigest()
    return f"mcp:session:{digest}"
