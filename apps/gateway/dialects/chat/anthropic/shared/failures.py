"""Anthropic Messages, both sides: error objects, read from providers and written to clients."""

from __future__ import annotations

from typing import Any

from apps.gateway.canonical.events import Failed
from apps.gateway.dialects import Failure
from apps.gateway.dialects.chat.anthropic.shared.wire import encode
from apps.gateway.dialects.reading.answer_errors import MAX_ERROR_LENGTH, failure_event, read_refusal
from apps.gateway.dialects.reading.context_overflow import anthropic_message, code_of
from apps.kernel.errors import ApiError, InvalidRequest
from apps.kernel.rest.envelopes import anthropic_type

# By this code Anthropic's clients learn that they have to send the whole conversation each time.
UNTHREADED = "thread_unsupported_request"

# The status behind the word of an error that comes without one: in the middle of a stream, or of a batch.
STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


def read_failure(status: int, body: bytes) -> Failure:
    """Return what a provider says in an answer that is not 2xx."""
    return read_refusal(status, body, find_failure)


def find_failure(answer: Any) -> Failure | None:
    """Return the error in an answer, or None when there is none in it."""
    if not isinstance(answer, dict):
        return None
    error = answer.get("error")
    if isinstance(error, str) and error:
        return Failure(message=error[:MAX_ERROR_LENGTH])
    if isinstance(error, dict) and error:
        return _failure_of(error)
    if answer.get("type") == "error" or "content" not in answer:
        return _failure_of(answer) if isinstance(answer.get("message"), str) else None
    return None


def _failure_of(error: dict[str, Any]) -> Failure:
    message, kind = error.get("message"), error.get("type")
    code = kind if isinstance(kind, str) and kind else None
    words = message if isinstance(message, str) and message else code or "The provider gave no reason"
    return Failure(message=words[:MAX_ERROR_LENGTH], code=code_of(words, code))


def failed(answer: dict[str, Any]) -> Failed:
    """Return the end of an answer that holds an error, with the status that its type stands for, else 502."""
    failure = find_failure(answer) or Failure(message="The provider gave no reason")
    error = answer.get("error")
    kind = error.get("type") if isinstance(error, dict) else None
    return failure_event(failure, STATUSES.get(kind, 502) if isinstance(kind, str) else 502)


def write_error(error: ApiError) -> bytes:
    """Return an error's body. A field at fault is announced as Anthropic's format of this gateway has it."""
    error_object = write_error_object(error)
    return encode({"type": "error", "error": error_object, "status": error.status, "message": error_object["message"]})


def write_error_object(error: ApiError) -> dict[str, Any]:
    """Return what clients of this format look for in an error."""
    message = anthropic_message(error)
    if isinstance(error, InvalidRequest) and error.param and message.startswith(f"{error.param}: "):
        message = f"Invalid request format: {message}"
    error_object: dict[str, Any] = {"type": anthropic_type(error.status), "message": message}
    if error.code == UNTHREADED:
        error_object["details"] = {"error_code": UNTHREADED, "unsupported": ["thread"]}
    return error_object
