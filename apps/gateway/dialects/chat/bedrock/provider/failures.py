"""Bedrock Converse, provider side: reads error bodies, and exceptions in the middle of a stream."""

from __future__ import annotations

import re
from typing import Any

from apps.gateway.canonical.events import Failed
from apps.gateway.dialects import Failure
from apps.gateway.dialects.reading.answer_errors import MAX_ERROR_LENGTH, failure_event, read_answer
from apps.gateway.dialects.reading.context_overflow import code_of, code_of_status

# Bedrock says 400 of a model that it does not have there, as if the request were wrong.
_NO_SUCH_MODEL = re.compile(
    r"model identifier is invalid|on-demand throughput isn.t supported|don.t have access to the model", re.IGNORECASE
)
# The status for the name of an exception. A model's own failure, which Bedrock blames on the sender, is not the
# request's fault.
_STATUSES = {
    "throttlingexception": 429,
    "modelnotreadyexception": 429,
    "servicequotaexceededexception": 429,
    "validationexception": 400,
    "accessdeniedexception": 403,
    "resourcenotfoundexception": 404,
    "modelstreamerrorexception": 502,
    "modelerrorexception": 502,
    "internalserverexception": 500,
    "serviceunavailableexception": 503,
    "modeltimeoutexception": 504,
}
_MODEL_FAILED = 424
_MAX_NAME_LENGTH = 100


def read_failure(status: int, body: bytes) -> Failure:
    """Return what Bedrock says in an answer that is not 2xx."""
    try:
        answer = read_answer(body)
    except ValueError:
        answer = None
    words = _words(answer)
    if words is None:
        return Failure(message=f"The provider answered with status {status}", code=code_of_status(status))
    corrected = 502 if status == _MODEL_FAILED else None
    if status == 400 and _NO_SUCH_MODEL.search(words):
        corrected = 404
    return Failure(message=words, code=code_of(words, _name(answer)), status=corrected)


def exception(raised: Any) -> Failed:
    """Return the end of a stream that an exception ends."""
    name, content = next(iter(raised.items()), ("", None)) if isinstance(raised, dict) else ("", None)
    status = _STATUSES.get(name.lower(), 502)
    return failed(_words(content) or name or "The provider gave no reason", status, name or None)


def failed(words: str, status: int = 502, name: str | None = None) -> Failed:
    """Return the end of an answer that turns out to be a failure."""
    words = words[:MAX_ERROR_LENGTH]
    return failure_event(Failure(message=words, code=code_of(words, name)), status)


def find_failure(answer: Any) -> Failed | None:
    """Return the failure that an answer of status 200 holds instead of an output, None when it holds none."""
    if not isinstance(answer, dict) or "output" in answer:
        return None
    words = _words(answer)
    return None if words is None else failed(words, _STATUSES.get((_name(answer) or "").lower(), 502), _name(answer))


def _words(answer: Any) -> str | None:
    found = None
    for field in ("message", "Message", "originalMessage"):
        if isinstance(answer, dict) and isinstance(answer.get(field), str) and answer[field]:
            found = found or answer[field]
    return found[:MAX_ERROR_LENGTH] if found else None


def _name(answer: Any) -> str | None:
    """Return the exception's name where a body has it: without the namespace before it, and spelled as in streams."""
    kind = answer.get("__type") if isinstance(answer, dict) else None
    name = kind.rpartition("#")[2][:_MAX_NAME_LENGTH] if isinstance(kind, str) else ""
    return name[:1].lower() + name[1:] or None
