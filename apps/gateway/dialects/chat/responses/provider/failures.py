"""OpenAI Responses, provider side: reads errors: with a status, as an event, or inside a response."""

from __future__ import annotations

import re
from typing import Any, Final

from apps.gateway.canonical.events import Failed
from apps.gateway.dialects import Failure
from apps.gateway.dialects.chat.openai.shared import failures as openai_failures
from apps.gateway.dialects.reading.answer_errors import MAX_ERROR_LENGTH, failure_event
from apps.gateway.dialects.reading.context_overflow import code_of
from apps.gateway.dialects.reading.fields import Record

# The status behind the word of an error that comes without one.
_STATUSES: Final = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "insufficient_quota": 429,
    "too_many_requests": 429,
    "server_overloaded": 503,
    "overloaded_error": 503,
    "slow_down": 503,
    "server_error": 502,
    "internal_error": 502,
    "vector_store_timeout": 504,
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "content_policy_violation": 400,
    "bio_policy": 400,
    "misalignment_policy_violation": 400,
    "data_residency_mismatch": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
}
# Words for what the client had sent: prompts and images.
_CLIENTS_OWN = re.compile("invalid_|image_|unsupported_|empty_|failed_to_download_")


def read_failure(status: int, body: bytes) -> Failure:
    """Return what a provider says in an answer that is not 2xx."""
    return openai_failures.read_failure(status, body)


def failed(error: Any) -> Failed:
    """Return the end of an answer that holds an error: that of an event, of a response, or whatever came instead."""
    wire: Record = error if isinstance(error, dict) else {"message": error}
    words, code, kind, param = (wire.get(name) for name in ("message", "code", "type", "param"))
    message = words[:MAX_ERROR_LENGTH] if isinstance(words, str) and words else "The provider gave no reason"
    code = code_of(message, code if isinstance(code, str) and code else None) or code
    word = code if isinstance(code, str) else None
    about = param if isinstance(param, str) and param else None
    return failure_event(Failure(message=message, code=word, param=about), _status(code, kind))


def _status(code: Any, kind: Any) -> int:
    """Return the status of an error: the more specific code counts, and an unknown one is a 502."""
    for word in (code, kind):
        if isinstance(word, int) and 400 <= word <= 599:
            return word
        if isinstance(word, str):
            if word in _STATUSES:
                return _STATUSES[word]
            if _CLIENTS_OWN.match(word):
                return 400
    return 502
