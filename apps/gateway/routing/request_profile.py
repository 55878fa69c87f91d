"""Request profile: the properties of a request for choosing its provider; session affinity by its conversation.

The conversation is found in headers and fields that clients already send, so that a provider's prompt cache is hit
again. A key that comes from a field may be a person's id and is only compared. A session that a header names is also
stated in traces; the log groups requests by it, or by a field that names nothing but a session.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import msgspec

from apps.gateway.access.credentials import is_usable
from apps.gateway.canonical.chat import Chat, asked_service_tier
from apps.gateway.client.http_request import ClientRequest
from apps.gateway.routing.ranking import RequestProfile
from apps.gateway.tasks import TASKS
from apps.gateway.token_estimate import estimate_prompt_tokens
from apps.gateway.tracing.request_trace import read_traceparent
from apps.kernel.concurrency.cached_setting import CachedSetting

# In this order; sources: Claude Code, opencode, Codex.
SESSION_HEADERS = ("x-claude-code-session-id", "x-session-id", "x-session-affinity", "session-id")
_MAX_LENGTH = 512
# Characters of a user's id that are looked into: Claude Code's has some 200.
_MAX_USER_LENGTH = 16_384


def find_session_key(
    headers: Mapping[str, str], prompt_cache_key: str | None, metadata: Mapping[str, Any] | None
) -> str | None:
    """Return the key that all requests of one conversation share, None when the client sends none."""
    if headers and (session := session_id_of(headers)):
        return session
    if prompt_cache_key:
        return prompt_cache_key[:_MAX_LENGTH]
    user = (metadata or {}).get("user_id")
    return _session_within(user)[:_MAX_LENGTH] if isinstance(user, str) and user else None


def session_id_of(headers: Mapping[str, str]) -> str:
    """Return the session that a client names in a header; empty where it names none."""
    return next((value[:_MAX_LENGTH] for name in SESSION_HEADERS if (value := headers.get(name))), "")


def named_session(request: ClientRequest) -> str:
    """Return the session that traces and logs state: the stored conversation, else the client's own in a header."""
    return request.conversation_id or session_id_of(request.headers(*SESSION_HEADERS))


def logged_session(request: ClientRequest, chat: Chat | None = None) -> str | None:
    """Return the session that the log groups requests by, None where the client names none in printable characters.

    The first of these that the request has: the stored conversation, the session of a header or a field, the chain of
    stored responses, the trace of the client's `traceparent`.
    """
    if session := named_session(request) or _session_of_fields(chat) or request.response_chain:
        return session if session.isprintable() else None
    trace = read_traceparent(request.header("traceparent"))
    return None if trace is None else trace.trace_id.hex()


def _session_of_fields(chat: Chat | None) -> str:
    if chat is None:
        return ""
    if chat.preferences is not None and chat.preferences.session:
        return chat.preferences.session
    return _find_session_within(chat.user) if chat.user else ""


def _session_within(user: str) -> str:
    """Return the session that Claude Code names inside its `metadata.user_id`, else all of it."""
    return _find_session_within(user) or user


def _find_session_within(user: str) -> str:
    """Return the session that Claude Code names inside its `metadata.user_id`; empty where there is none."""
    if user.startswith("{") and len(user) <= _MAX_USER_LENGTH:
        try:
            session = msgspec.json.decode(user, type=dict[str, Any]).get("session_id")
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return ""
        return session if isinstance(session, str) else ""
    return user.rpartition("_session_")[2] if "_session_" in user else ""


def without_session(user: str) -> str:
    """Return a user's name without the session that Claude Code names inside it: one person has many sessions."""
    session = _find_session_within(user)
    return user.replace(session, "") if session else user


# The answer that is expected when ranking prices: a quarter of the prompt, within bounds, in tokens.
USUAL_PROMPT_SHARE, MIN_USUAL_ANSWER, MAX_USUAL_ANSWER = 4, 100, 2_000
_EXPLORATION = CachedSetting("ROUTING_EXPLORATION")


def profile_request(request: ClientRequest, chat: Chat) -> RequestProfile:
    """Return the profile of a request."""
    prompt = estimate_prompt_tokens(chat)
    # By which the client keeps a conversation's prompts together.
    wishes = chat.preferences
    prompt_key = chat.prompt_cache_key if wishes is None or wishes.session is None else wishes.session
    usual = min(max(prompt // USUAL_PROMPT_SHARE, MIN_USUAL_ANSWER), MAX_USUAL_ANSWER)
    return RequestProfile(
        prompt_tokens=prompt,
        answer_tokens=min(usual, chat.max_tokens or usual),
        images=TASKS[chat.task].count_images(chat),
        service_tier=asked_service_tier(chat),
        streaming=chat.stream,
        # Anthropic's format has the user's id nowhere but in `metadata`, and it is read as the user.
        session=find_session_key(
            request.headers(*SESSION_HEADERS), prompt_key, {"user_id": chat.user, **(chat.metadata or {})}
        ),
        random_draw=random.random(),  # noqa: S311 - a draw, not a secret
        exploration=_EXPLORATION.value,
        is_credential_usable=is_usable,
    )
