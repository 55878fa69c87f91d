"""Bedrock Converse: names and constants on the wire."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any, Final

import msgspec

from apps.gateway.canonical.events import FinishReason
from apps.gateway.dialects.adapting.signed_call_ids import split_signature
from apps.gateway.dialects.reading.fields import Record
from apps.gateway.dialects.reading.reported_counts import has_odd_count, read_count
from apps.kernel.errors import InvalidRequest
from apps.kernel.usage import Usage

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
# Words that say that the model's answer is of no use; asking again may help.
FAILURE_WORDS: Final = frozenset({"malformed_model_output", "malformed_tool_use"})

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
