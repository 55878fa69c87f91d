"""OpenAI Chat Completions, both sides: error objects, read from providers and written to clients."""

from __future__ import annotations

from typing import Any

from apps.gateway.canonical.events import Failed
from apps.gateway.dialects import Failure
from apps.gateway.dialects.chat.openai.shared.wire import encode
from apps.gateway.dialects.reading.answer_errors import MAX_ERROR_LENGTH, failure_event, read_refusal
from apps.gateway.dialects.reading.context_overflow import code_of
from apps.gateway.retry_after import retry_delay_of
from apps.kernel.errors import ApiError


def read_failure(status: int, body: bytes) -> Failure:
    """Return what a provider says in an answer that is not 2xx. Some answer with a list of one."""
    return read_refusal(status, body, lambda answer: find_failure(answer[0] if _is_list(answer) else answer))


def _is_list(answer: Any) -> bool:
    return isinstance(answer, list) and bool(answer)


def find_failure(answer: Any) -> Failure | None:
    """Return the error in an answer, or None when there is none in it."""
    if not isinstance(answer, dict):
        return None
    error = answer.get("error")
    if error is None and answer.get("choices") is not None:
        return None
    if isinstance(error, dict) and error:
        return _failure_of(error)
    if isinstance(error, str) and error:
        return _failure(error, code=_word(answer.get("code")))
    if answer.get("choices") is None and (refusal := _status_inside(answer)):
        return refusal
    if "choices" in answer:
        return None
    if answer.get("object") == "error" or "message" in answer:
        return _failure_of(answer)
    errors = answer.get("errors")
    if isinstance(errors, list) and errors:
        return _failure_of(errors[0]) if isinstance(errors[0], dict) else _failure(str(errors[0]))
    return _failure_of_detail(answer.get("detail"))


def _status_inside(answer: dict[str, Any]) -> Failure | None:
    """Return the error of those who answer every request with status 200, and say in an object how it went."""
    inner = answer.get("base_resp")
    number = inner.get("status_code") if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or not isinstance(number, int) or number == 0:
        return None
    words = inner.get("status_msg")
    return _failure(words if isinstance(words, str) and words else "The provider gave no reason", code=str(number))


def _failure_of_detail(detail: Any) -> Failure | None:
    """Return the error of those who say what is wrong as a list of fields, or as words."""
    if isinstance(detail, dict) and (found := find_failure(detail)):
        return found
    first = detail[0] if isinstance(detail, list) and detail else None
    if isinstance(first, dict) and isinstance(words := first.get("msg"), str) and words:
        place = first.get("loc")
        steps = [str(step) for step in place if step != "body"] if isinstance(place, list) else []
        return _failure(": ".join(filter(None, (".".join(steps), words))), param=".".join(steps) or None)
    if detail:
        return _failure(detail if isinstance(detail, str) else encode(detail).decode())
    return None


def failed(answer: Any, failure: Failure) -> Failed:
    """Return the end of an answer that holds an error, with the status that the provider gives it, else 502."""
    inner = answer.get("error")
    return failure_event(failure, _status(inner if isinstance(inner, dict) else answer))


def write_error(error: ApiError) -> bytes:
    """Return an error's body."""
    return encode({"error": write_error_object(error), "status": error.status, "message": error.message})


def write_detailed_error(error: ApiError) -> bytes:
    """Return an error's body with its message also where clients of Voyage look for it: they know no error without."""
    shown = {"error": write_error_object(error), "status": error.status, "message": error.message}
    return encode({**shown, "detail": error.message})


def write_error_object(error: ApiError) -> dict[str, Any]:
    """Return what clients of this format look for in an error."""
    return {"message": error.message, "type": error.type, "param": error.param, "code": error.code}


def _failure_of(error: dict[str, Any]) -> Failure:
    message = error.get("message") or error.get("detail") or error.get("type") or "The provider gave no reason"
    if isinstance(message, dict) and (found := _failure_of_detail(message.get("detail"))):
        return found
    return _failure(
        message if isinstance(message, str) else encode(message).decode(),
        code=_word(error.get("code")),
        param=_word(error.get("param")),
        retry_after=retry_delay_of(error.get("details")),
    )


def _failure(
    message: str, code: str | None = None, param: str | None = None, retry_after: float | None = None
) -> Failure:
    code = code_of(message, code)
    return Failure(message=message[:MAX_ERROR_LENGTH], code=code, param=param, retry_after=retry_after)


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _status(error: dict[str, Any]) -> int:
    for name in ("status_code", "status", "code"):
        value = error.get(name)
        if isinstance(value, int) and 400 <= value <= 599:
            return value
    return 502
