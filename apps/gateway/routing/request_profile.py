"""Request profile: the properties of a request that matter for choosing its provider, read once."""

from __future__ import annotations

import random

from apps.gateway.access.credentials import is_usable
from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.service_tier import asked_service_tier
from apps.gateway.client.http_request import ClientRequest
from apps.gateway.client.session_affinity import HEADERS as SESSION_HEADERS
from apps.gateway.client.session_affinity import find_session_key
from apps.gateway.routing.ranking import RequestProfile
from apps.gateway.tasks import TASKS
from apps.gateway.token_estimate import estimate_prompt_tokens
from apps.kernel.concurrency.cached_setting import CachedSetting

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
