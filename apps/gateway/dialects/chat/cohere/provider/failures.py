"""Cohere Chat v2, provider side: reads error bodies."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from apps.gateway.dialects import Failure
from apps.gateway.dialects.chat.openai.shared.failures import find_failure as find_error_object
from apps.gateway.dialects.reading.answer_errors import MAX_ERROR_LENGTH, read_refusal
from apps.gateway.dialects.reading.context_overflow import code_of


def read_failure(status: int, body: bytes) -> Failure:
    """Return what Cohere says in an answer that is not 2xx."""
    return read_refusal(status, body, find_failure)


def find_failure(answer: Any) -> Failure | None:
    """Return the error in an answer, or None when there is none in it: a message that is words, not an object."""
    if not isinstance(answer, dict):
        return None
    words = answer.get("message")
    failure = find_error_object(answer) if "error" in answer or "detail" in answer else None
    if failure is None and isinstance(words, str) and words:
        failure = Failure(message=words[:MAX_ERROR_LENGTH])
    return failure and replace(failure, code=code_of(failure.message, failure.code))
