"""Context windows: which candidates have room for a prompt and its answer.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat
from apps.gateway.tasks import task_of
from apps.gateway.token_estimate import estimate_prompt_tokens
from apps.kernel.errors import InvalidRequest

if TYPE_CHECKING:
    from apps.gateway.routing.candidates import Candidate


def filter_by_context_window(
    chat: Chat, fitting: Sequence[Candidate], prompt_tokens: int, requested: str | None
) -> tuple[Candidate, ...]:
    """Return the candidates that have room for prompt and answer, and write as long an answer as asked if any does.

    The prompt's tokens are estimated, so the one that the client named, and the roomiest of those that all seem too
    small, may try; a prompt twice as large as the largest context is refused.
    """
    if not task_of(chat).fits_context:
        return tuple(fitting)
    if chat.task == "completions" and len(chat.messages) > 1:
        # Each prompt is read by itself.
        prompt_tokens = max(estimate_prompt_tokens(replace(chat, messages=[message])) for message in chat.messages)
    wanted = chat.max_tokens or 0
    needed = prompt_tokens + wanted
    for one in fitting:
        if not (_fits(one.offer.context_length, needed) and _fits(one.offer.max_output, wanted)):
            break
    else:
        return tuple(fitting)
    contexts = [one.offer.context_length for one in fitting]
    largest = None if None in contexts else max(one for one in contexts if one is not None)
    if largest is not None and prompt_tokens > 2 * largest:
        # Agents read these words, and compact their conversation by as much (Claude Code, LiteLLM).
        raise InvalidRequest(
            f"This model's maximum context length is {largest} tokens. "
            f"The prompt is too long: about {prompt_tokens} tokens > {largest} that {chat.model} takes",
            code="context_length_exceeded",
            param="messages",
        )
    roomy = [one for one in fitting if _fits(one.offer.context_length, needed)]
    roomy = roomy or [one for one in fitting if one.offer.context_length == largest]
    left = [one for one in roomy if _fits(one.offer.max_output, wanted)] or roomy
    named = [one for one in fitting if one.provider_id == requested and one not in left]
    return (*left, *named)


def _fits(limit: int | None, tokens: int) -> bool:
    return limit is None or tokens <= limit
