"""What of a request matters for choosing who answers it, read once.

Knows a call, a chat and this process's luck. Must never know a candidate.
"""

from __future__ import annotations

import random

from apps.gateway.access.credentials import is_rested
from apps.gateway.canonical.chat import Chat
from apps.gateway.client.http_request import Call
from apps.gateway.client.session_affinity import HEADERS as SESSION_HEADERS
from apps.gateway.client.session_affinity import session_of
from apps.gateway.routing.ranking import Shape
from apps.gateway.token_estimate import prompt_tokens_of
from apps.kernel.cached_setting import CachedSetting

# The answer that is expected when ranking prices: a quarter of the prompt, within bounds, in tokens.
USUAL_PROMPT_SHARE, SHORTEST_USUAL_ANSWER, LONGEST_USUAL_ANSWER = 4, 100, 2_000
_EXPLORATION = CachedSetting("ROUTING_EXPLORATION")


def shape_of(call: Call, chat: Chat) -> Shape:
    """Return what of a request matters for choosing who answers it."""
    prompt = prompt_tokens_of(chat)
    usual = min(max(prompt // USUAL_PROMPT_SHARE, SHORTEST_USUAL_ANSWER), LONGEST_USUAL_ANSWER)
    return Shape(
        prompt_tokens=prompt,
        answer_tokens=min(usual, chat.max_tokens or usual),
        pictures=0 if chat.drawing is None else chat.n or 1,
        streaming=chat.stream,
        # Anthropic's format has the user's id nowhere but in `metadata`, and it is read as the user.
        session=session_of(
            call.headers(*SESSION_HEADERS), chat.prompt_cache_key, {"user_id": chat.user, **(chat.metadata or {})}
        ),
        luck=random.random(),  # noqa: S311 - a draw, not a secret
        exploration=_EXPLORATION.value,
        healthy=is_rested,
    )
