"""Bedrock Converse, both sides: names on the wire, token usage, errors and exceptions in the middle of a stream.

The facts that a data file may state of a provider or model are here, too; docs/adding-a-dialect.md explains each.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Annotated, Any, Final, Literal

import msgspec

from apps.gateway.canonical.chat import Target
from apps.gateway.canonical.events import Failed, FinishReason
from apps.gateway.dialects import Failure, fact
from apps.gateway.dialects.adapting.thinking import split_signature
from apps.gateway.dialects.reading.answers import (
    MAX_ERROR_LENGTH,
    bedrock_message,
    code_of,
    code_of_status,
    failure_event,
    has_odd_count,
    message_with_field,
    read_answer,
    read_count,
)
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.errors import ApiError, InvalidRequest
from apps.kernel.rest.envelopes import Family
from apps.kernel.usage import Usage

NAME: Final = "bedrock"
FRAMING: Final = "aws_eventstream"
# Images and files come as bytes.
MEDIA_URLS: Final = False
# Models that are asked in this format do not think unless they are asked to, or show all of it.
THINKS_WHEN_ASKED: Final = True
STREAM_TYPE: Final = "application/vnd.amazon.eventstream"

# Bedrock's words for why a model stopped. A word not listed is taken for `stop`.
FINISH_REASONS: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}
STOP_REASONS: Final[dict[FinishReason, str]] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "content_filtered",
}
# Words that say that the model's answer is of no use; asking again may help.
FAILURE_WORDS: Final = frozenset({"malformed_model_output", "malformed_tool_use"})

# Labels that a request may have.
MAX_LABELS: Final = 16

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_.:-]")
_MAX_ID_LENGTH, _DIGITS = 64, 16

encode = msgspec.json.Encoder().encode


def without_none(**values: Any) -> Record:
    """Return the fields that are stated: null is never sent."""
    return {name: value for name, value in values.items() if value is not None}


def write_id(call_id: str) -> str:
    """Return a call's id as Bedrock takes it; the same for a call and its result, and never that of another call."""
    bare = split_signature(call_id)[0]
    clean = _NOT_IN_IDS.sub("_", bare)
    if clean == bare and 0 < len(bare) <= _MAX_ID_LENGTH:
        return bare
    digits = sha256(bare.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{clean[: _MAX_ID_LENGTH - _DIGITS - 1]}-{digits}"


def refused(message: str, param: str) -> InvalidRequest:
    """Return the refusal of what the format has no words for; `param` is the client's field."""
    return InvalidRequest(message, code="unsupported_feature", param=param)


_MAIN = ("inputTokens", "outputTokens")


def read_usage(reported: Any) -> Usage | None:
    """Return the counts, or None when none are reported.

    `cacheDetails` say how long written tokens are kept; tokens that they do not mention count as 5-minute.
    """
    if not isinstance(reported, dict):
        return None
    hour = shorter = 0
    details = reported.get("cacheDetails")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict):
            count = read_count(detail.get("inputTokens"))
            hour, shorter = (hour + count, shorter) if detail.get("ttl") == "1h" else (hour, shorter + count)
    hour, shorter = read_count(hour), read_count(shorter)
    usage = Usage(
        input=read_count(reported.get("inputTokens")),
        cache_read=read_count(reported.get("cacheReadInputTokens")),
        cache_write=max(read_count(reported.get("cacheWriteInputTokens")) - hour, shorter),
        cache_write_1h=hour,
        output=read_count(reported.get("outputTokens")),
        estimated=has_odd_count(reported, "cacheReadInputTokens", "cacheWriteInputTokens", main=_MAIN)
        or any(has_odd_count(detail, "inputTokens") for detail in (details if isinstance(details, list) else ())),
    )
    return usage if usage.total_tokens else None


def write_usage(usage: Usage) -> Record:
    """Return `usage`, in which tokens of the prompt that were read from a cache or written to one are counted apart."""
    written = usage.cache_write + usage.cache_write_1h
    wire: Record = {
        "inputTokens": usage.prompt_tokens - usage.cache_read - written,
        "outputTokens": usage.completion_tokens,
        "totalTokens": usage.prompt_tokens + usage.completion_tokens,
        "cacheReadInputTokens": usage.cache_read,
        "cacheWriteInputTokens": written,
    }
    if written:
        lifetimes = (("5m", usage.cache_write), ("1h", usage.cache_write_1h))
        wire["cacheDetails"] = [{"ttl": ttl, "inputTokens": count} for ttl, count in lifetimes if count]
    return wire


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


# The exceptions of Converse by status; any other 4xx is a ValidationException, any other 5xx an
# InternalServerException.
_EXCEPTIONS: Final = {
    401: "AccessDeniedException",
    402: "ServiceQuotaExceededException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    410: "ResourceNotFoundException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    502: "ModelErrorException",
    503: "ServiceUnavailableException",
    504: "ModelTimeoutException",
    529: "ServiceUnavailableException",
}
# Statuses that the format has for what the gateway answers with another. AWS's clients repeat a request after 502 and
# 504, although every provider was asked.
_CLIENT_STATUSES: Final = {502: _MODEL_FAILED, 504: 408}
# The exceptions that a stream may end with, by status.
_STREAM_EXCEPTIONS: Final = {
    429: "throttlingException",
    502: "modelStreamErrorException",
    503: "serviceUnavailableException",
    504: "modelStreamErrorException",
    529: "serviceUnavailableException",
}
ERROR_TYPE: Final = "x-amzn-ErrorType"
REQUEST_ID: Final = "x-amzn-RequestId"


def exception_of(status: int) -> str:
    """Return the name of the exception that a status stands for."""
    return _EXCEPTIONS.get(status, "ValidationException" if status < 500 else "InternalServerException")


def stream_exception_of(status: int) -> str:
    """Return the name of the exception that ends a stream."""
    return _STREAM_EXCEPTIONS.get(status, "validationException" if status < 500 else "internalServerException")


def _message(error: ApiError) -> str:
    """Return an error's message, which is all that AWS's clients show: with the words and the field to look for."""
    message = bedrock_message(error)
    return message_with_field(error) if message is error.message else message


def error_body(error: ApiError) -> Record:
    """Return an error as the format's clients read it: the message and the exception, and beside them the gateway's
    code and the field."""
    told = {"type": error.type, "code": error.code, "param": error.param}
    return {"message": _message(error), "__type": exception_of(error.status), "error": told}


def write_error(error: ApiError) -> bytes:
    """Return an error's body."""
    return encode(error_body(error))


def error_for_clients(error: ApiError) -> ApiError:
    """Return an error with the format's status for it, and the exception's name in its header."""
    status = _CLIENT_STATUSES.get(error.status, error.status)
    if error.code == "model_not_found" and status == 400:
        status = 404
    headers = [*error.headers, (ERROR_TYPE, exception_of(status))]
    told = ApiError(
        _message(error),
        code=error.code,
        param=error.param,
        status=status,
        retry_after=error.retry_after,
        headers=headers,
    )
    told.type = error.type
    return told


ERRORS: Final = Family("bedrock", error_body, "BedrockError")


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state of a model."""

    reasoning_form: Annotated[
        Literal["thinking", "reasoning", "reasoning_effort", "reasoning_config", "reasoningConfig"] | None,
        fact(
            "the field of `additionalModelRequestFields` that asks for reasoning: `thinking` (Anthropic's, with "
            "`reasoning_budget` as there), `reasoning` (an object with the effort), `reasoning_effort` or "
            "`reasoning_config` (the effort itself), `reasoningConfig` (Nova's); without it nothing is asked and an "
            "effort is noted as dropped"
        ),
    ] = None
    reasoning_efforts: Annotated[
        tuple[str, ...], fact("the efforts that the model knows: any other is sent as the nearest, with a note")
    ] = ()
    takes: Annotated[
        frozenset[str],
        fact(
            "features beyond those of every model: `cache_points` and `cache_tools` (cache marks behind a "
            "message's blocks, behind tools), `cache_1h` (their longer `ttl`), `top_k` or `inferenceConfig.topK` (the "
            "field of `additionalModelRequestFields` for it), `strict` (tool arguments are bound to the schema), "
            "`tool_choice` (Anthropic's own, in place of Bedrock's), `citations` (the answer cites documents)"
        ),
    ] = frozenset()
    tool_results: Annotated[
        Literal["alone", "without_files"] | None,
        fact(
            "what a user may say beside tool results: `alone` nothing, `without_files` all but documents and videos; "
            "else the turn is sent in two, with an assistant's `.` between them",
            default="beside anything",
        ),
    ] = None
    result_status: Annotated[bool, fact("a tool's failure is reported in `status`; else as text")] = True
    betas: Annotated[
        frozenset[str], fact("the previews (`anthropic-beta`) that the model takes, as `anthropic_beta`")
    ] = frozenset()

    @property
    def signs_thinking(self) -> bool:
        """Whether the model signs its thinking and takes it back: those do that speak Anthropic's words for it."""
        return self.reasoning_form == "thinking"


def capabilities_of(target: Target) -> Capabilities:
    """Return how a chat has to be written for a target."""
    return msgspec.convert(target.facts, Capabilities)
