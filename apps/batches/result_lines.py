"""Lines of results: what became of each line of a batch, in OpenAI's and in Anthropic's shape.

Sources: OpenAI's Batch API (`BatchRequestOutput`; a refusal is a response with its status, `error` is for lines that
were never answered), `anthropic.types.messages.MessageBatchIndividualResponse`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from apps.batches.line_rows import LineResult, line_id, refusal_of, request_of, result_of
from apps.batches.models import BatchFormat, BatchLine, LineOutcome
from apps.kernel.secrets.encryption import UnreadableSecretError

# Of lines that were not answered: code and words.
_NOT_ANSWERED: Final = {
    LineOutcome.CANCELLED: ("batch_cancelled", "This request was not executed before the batch was cancelled."),
    LineOutcome.EXPIRED: (
        "batch_expired",
        "This request could not be executed before the completion window expired.",
    ),
}
_LOST: Final = ("server_error", "The result of this request can no longer be read.")
_ANTHROPIC_WORDS: Final = {LineOutcome.CANCELLED: "canceled", LineOutcome.EXPIRED: "expired"}

ResultWriter = Callable[[BatchLine], bytes]


def write_openai(line: BatchLine) -> bytes:
    """Return a line of an output or error file."""
    identifier, result = line_id(line.batch, line.position), _find_result(line)
    response, error = None, None
    if result is not None:
        response = {"status_code": result.status, "request_id": identifier, "body": result.body}
    else:
        code, message = _NOT_ANSWERED.get(LineOutcome(line.outcome), _LOST)
        error = {"code": code, "message": message}
    return _line({"id": identifier, "custom_id": _custom_id(line), "response": response, "error": error})


def write_anthropic(line: BatchLine) -> bytes:
    """Return a line of the results of a message batch."""
    result, outcome = _find_result(line), dict[str, Any]()
    if line.outcome in _ANTHROPIC_WORDS:
        outcome = {"type": _ANTHROPIC_WORDS[LineOutcome(line.outcome)]}
    elif result is None:
        outcome = {"type": "errored", "error": {"type": "error", "error": {"type": "api_error", "message": _LOST[1]}}}
    elif line.outcome == LineOutcome.SUCCEEDED:
        outcome = {"type": "succeeded", "message": result.body}
    else:
        outcome = {"type": "errored", "error": result.body}
    return _line({"custom_id": _custom_id(line), "result": outcome})


WRITERS: Final[dict[str, ResultWriter]] = {
    BatchFormat.OPENAI: write_openai,
    BatchFormat.ANTHROPIC: write_anthropic,
}


def _find_result(line: BatchLine) -> LineResult | None:
    try:
        return refusal_of(line.batch) if line.outcome == LineOutcome.UNPAID else result_of(line)
    except UnreadableSecretError:
        return None


def _custom_id(line: BatchLine) -> str | None:
    try:
        return request_of(line).custom_id
    except UnreadableSecretError:
        return None


def _line(value: dict[str, Any]) -> bytes:
    return msgspec.json.encode(value) + b"\n"
