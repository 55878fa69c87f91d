"""Google generateContent, provider side: reads error bodies."""

from __future__ import annotations

from typing import Any

from apps.gateway.canonical.events import Failed
from apps.gateway.dialects import Failure
from apps.gateway.dialects.reading.answer_errors import MAX_ERROR_LENGTH, failure_event, read_refusal
from apps.gateway.dialects.reading.context_overflow import code_of
from apps.gateway.dialects.reading.fields import Record
from apps.gateway.retry_after import retry_delay_of


def read_failure(status: int, body: bytes) -> Failure:
    """Return what Google says in an answer that is not 2xx."""
    return read_refusal(status, body, find_failure)


def find_failure(answer: Any) -> Failure | None:
    """Return the error in an answer, or None when there is none in it. Some answer with a list of one."""
    error = _error_in(answer)
    if error is None:
        return None
    message = error.get("message")
    if not isinstance(message, str) or not message:
        message = "The provider gave no reason"
    code = _reason(error) or error.get("status")
    return Failure(
        message=message[:MAX_ERROR_LENGTH],
        code=code_of(message, code if isinstance(code, str) and code else None),
        # Google says 400 of a credential that it does not know, as if the request were wrong.
        status=401 if code == "API_KEY_INVALID" else None,
        retry_after=retry_delay_of(error.get("details")),
    )


def failed(answer: Any, failure: Failure) -> Failed:
    """Return the end of an answer that holds an error, with the status that Google gives it, else 502."""
    code = (_error_in(answer) or {}).get("code")
    return failure_event(failure, code if isinstance(code, int) and 400 <= code <= 599 else 502)


def _error_in(answer: Any) -> Record | None:
    if isinstance(answer, list) and answer:
        answer = answer[0]
    error = answer.get("error") if isinstance(answer, dict) else None
    return error if isinstance(error, dict) and error else None


def _reason(error: Record) -> Any:
    """Return the reason that the details state, which is narrower than the status (`API_KEY_INVALID`)."""
    details = error.get("details")
    reasons = [
        detail.get("reason") for detail in (details if isinstance(details, list) else ()) if isinstance(detail, dict)
    ]
    return next((reason for reason in reasons if reason), None)
