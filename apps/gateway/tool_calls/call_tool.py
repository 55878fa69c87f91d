"""A call of a tool: found, admitted, screened, made, screened again, and recorded once. The story of one call.

A server gets nothing of the caller's but the arguments. Sessions at servers are kept between the calls of one caller's
session, in all workers, and never shared: a session is found by the server as of its last change, the API key, and the
caller's own session. A lost session never fails a call: a new one begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from hashlib import sha256
from typing import Any, Final

import msgspec
import structlog
from redis.exceptions import RedisError

from apps.catalog import catalog_cache
from apps.gateway.access.policy import Policy, find_policy
from apps.gateway.admission import admit
from apps.gateway.admission.admit import AdmissionGrant
from apps.gateway.admission.worst_case import NO_COST
from apps.gateway.settlement import record
from apps.gateway.settlement.record_backlog import BACKLOG
from apps.gateway.tool_calls import RATE_FAMILY, Interruption, ToolCaller, listings, tool_record
from apps.gateway.tool_calls.tool_guard import ToolGuard
from apps.kernel.errors import ApiError, InternalError, Overloaded
from apps.kernel.ids import new_id
from apps.kernel.secrets.encryption import UnreadableSecretError, decrypt_content, encrypt_content
from apps.kernel.valkey.cache_store import CacheShare
from apps.logs.entry import Entry
from apps.mcp_servers.actions import target_of
from apps.mcp_servers.client import McpClient, OnProgress, ToolAnswer, UpstreamSession
from apps.mcp_servers.models import McpServer

log = structlog.get_logger(__name__)

# Policy and catalog may change while a call is let in; more often than this in a row means something is wrong.
_MAX_READINGS = 5


def call_tool(
    caller: ToolCaller,
    server_name: str,
    tool_name: str,
    arguments: dict[str, Any],
    on_progress: OnProgress | None = None,
    interruption: Interruption | None = None,
    *,
    joined: bool = False,
    for_model: bool = False,
) -> ToolAnswer:
    """Call a tool of a registered server on behalf of an API key; return what it says, its own errors included.

    With `joined` the tool's name is that among the tools of all servers. With `for_model` a model of the gateway called
    it and reads the result: values that guardrails restore are masked for the model only, not for the tool.

    Raises ApiError: Unauthenticated, Gone; NotFound for a server or tool that the key may not use; RateLimited,
    PaymentRequired, Overloaded; InvalidRequest (`guardrail_blocked`); McpServerFailed; ClientGone.
    """
    started_at = time.monotonic()
    BACKLOG.raise_if_backlogged()
    policy = find_policy(caller.token)
    server = listings.find_server(policy, server_name)
    tool = listings.find_tool(policy, server, tool_name, caller, joined=joined)
    policy, entry, granted = _admit(policy, server, tool.name, caller)
    guard = ToolGuard(policy, for_model=for_model)
    try:
        arguments, recorded = guard.screen_arguments(arguments)
        tool_record.keep_arguments(entry, policy, tool.name, recorded)
        tell = on_progress if on_progress is None or policy.guardrails is None else _without_words(on_progress)
        work = partial(McpClient.call_tool, name=tool.name, arguments=arguments, on_progress=tell)
        with nullcontext() if interruption is None else interruption.raise_while_waiting():
            answer = _ask(policy, server, caller, work)
        result = guard.screen_result(answer)
        tool_record.complete(entry, policy, result.recorded)
    except ApiError as error:
        tool_record.fail(entry, policy, error)
        raise
    except Exception as error:
        log.exception("tool_call.failed", request_id=caller.request_id)
        defect = InternalError("The gateway failed to call this tool")
        tool_record.fail(entry, policy, defect)
        raise defect from error
    finally:
        tool_record.enqueue(entry, granted, guard.violations, started_at)
    return result.passed


def _without_words(on_progress: OnProgress) -> OnProgress:
    """Return a progress callback that drops the server's words: they come before guardrails could read them."""
    return lambda progress, total, _words: on_progress(progress, total, None)


def _admit(policy: Policy, server: McpServer, tool: str, caller: ToolCaller) -> tuple[Policy, Entry, AdmissionGrant]:
    """Count a call against the limits of its key and organization; it costs nothing. Raises ApiError."""
    identifier = new_id()
    for _ in range(_MAX_READINGS):
        entry = tool_record.open_call(identifier, policy, server, tool, caller)
        granted = admit.admit(
            policy,
            catalog_cache.current(),
            caller.token,
            NO_COST,
            entry,
            record.write_ahead_note(entry),
            rate_family=RATE_FAMILY,
            free=False,
        )
        if granted is not None:
            return policy, entry, granted
        policy = find_policy(caller.token)
        # The tool was found by a copy of the policy that was out of date.
        listings.require_allowed(policy, server, tool)
    raise Overloaded("The gateway's configuration is changing; try again shortly", retry_after=1)


def _ask(policy: Policy, server: McpServer, caller: ToolCaller, work: Callable[[McpClient], ToolAnswer]) -> ToolAnswer:
    """Have a server work, in the caller's own session there where it has one."""
    session = find_session(policy, server, caller)
    with McpClient(target_of(server, cdn_loop=caller.cdn_loop), session) as client:
        try:
            return work(client)
        finally:
            if caller.session_scope and (kept := client.keep_session()) not in (None, session):
                keep_session(policy, server, caller, kept)


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
