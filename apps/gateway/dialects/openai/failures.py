"""What providers say when they fail, and what clients are told: errors on the wire, in both directions.

Knows the shapes of error objects. Must never decide what follows from one.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from apps.gateway.canonical.events import Failed
from apps.gateway.dialects import Failure
from apps.gateway.dialects.openai.wire import encode
from apps.kernel.errors import AllProvidersFailed, ApiError, UpstreamRefused

# Some providers answer with a page of HTML, or quote the whole request.
_MAX_WORDS = 2_000
_HALVES = re.compile("[\ud800-\udfff]")
_DECODER = msgspec.json.Decoder()


def read_answer(body: bytes) -> Any:
    """Return the JSON value of a provider's answer. Raises ValueError.

    Providers get away with what clients do not: half of a surrogate pair, raw control characters, bytes that are no
    UTF-8, and NaN (which becomes null).
    """
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        value = json.loads(body.decode("utf-8", "replace"), strict=False, parse_constant=lambda _: None)
        return _DECODER.decode(_HALVES.sub("\ufffd", json.dumps(value, ensure_ascii=False)))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None


def read_failure(status: int, body: bytes) -> Failure:
    """Return what a provider says in an answer that is not 2xx."""
    try:
        answer = read_answer(body)
    except ValueError:
        answer = None
    if isinstance(answer, list) and answer:
        answer = answer[0]
    failure = find_failure(answer)
    return failure or Failure(message=f"The provider answered with status {status}")


def find_failure(answer: Any) -> Failure | None:
    """Return the error in an answer, or None when there is none in it."""
    if not isinstance(answer, dict):
        return None
    error = answer.get("error")
    if isinstance(error, dict) and error:
        return _failure_of(error)
    if isinstance(error, str) and error:
        return Failure(message=error[:_MAX_WORDS], code=_word(answer.get("code")))
    if "choices" in answer:
        return None
    if answer.get("object") == "error" or "message" in answer:
        return _failure_of(answer)
    detail = answer.get("detail")
    if detail:
        return Failure(message=(detail if isinstance(detail, str) else encode(detail).decode())[:_MAX_WORDS])
    return None


def failed(answer: Any, failure: Failure) -> Failed:
    """Return the end of an answer that holds an error, with the status that the provider gives it, else 502."""
    inner = answer.get("error")
    status = _status(inner if isinstance(inner, dict) else answer)
    if status < 500 and status != 429:
        error: ApiError = UpstreamRefused(failure.message, status=status, code=failure.code, param=failure.param)
    else:
        error = AllProvidersFailed(failure.message, status=status, code=failure.code or "upstream_error")
    return Failed(error=error)


def broken(message: str) -> Failed:
    """Return the end of an answer that cannot be read."""
    return Failed(error=AllProvidersFailed(message, code="upstream_broken"))


def cut() -> Failed:
    """Return the end of an answer that stopped in the middle."""
    return Failed(error=AllProvidersFailed("The provider's answer ended before it was complete", code="upstream_cut"))


def write_error(error: ApiError) -> bytes:
    """Return an error's body."""
    return encode({"error": write_error_object(error), "status": error.status, "message": error.message})


def write_error_object(error: ApiError) -> dict[str, Any]:
    """Return what clients of this format look for in an error."""
    return {"message": error.message, "type": error.type, "param": error.param, "code": error.code}


def _failure_of(error: dict[str, Any]) -> Failure:
    message = error.get("message") or error.get("detail") or error.get("type") or "The provider gave no reason"
    return Failure(
        message=(message if isinstance(message, str) else encode(message).decode())[:_MAX_WORDS],
        code=_word(error.get("code")),
        param=_word(error.get("param")),
    )


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _status(error: dict[str, Any]) -> int:
    for name in ("status_code", "status", "code"):
        value = error.get(name)
        if isinstance(value, int) and 400 <= value <= 599:
            return value
    return 502
