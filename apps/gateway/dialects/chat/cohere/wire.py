"""Cohere Chat v2, both sides: names on the wire, token usage, errors of providers.

The facts that a data file may state of a provider or model are here, too; docs/adding-a-dialect.md explains each.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import Target
from apps.gateway.canonical.events import FinishReason
from apps.gateway.dialects import Failure, fact
from apps.gateway.dialects.chat.openai.wire import find_failure as find_error_object
from apps.gateway.dialects.reading.answers import MAX_ERROR_LENGTH, code_of, count_at, has_odd_count, read_refusal
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.errors import InvalidRequest
from apps.kernel.usage import Usage

NAME: Final = "cohere"
FRAMING: Final = "sse"

# How the plan of a model that is about to call tools is marked on its way through clients: it has a field of its own.
PLAN_FORMAT: Final = "cohere-tool-plan"

# The kind of a part that is a document, and its field.
DOCUMENT: Final = "document"

# Words for why a model stopped. A word not listed is taken for `stop`.
FINISH_REASONS: Final[dict[str, FinishReason]] = {
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_calls",
    "ERROR_TOXIC": "content_filter",
}
_WORDS: Final[dict[FinishReason, str]] = {
    "stop": "COMPLETE",
    **{reason: word for word, reason in FINISH_REASONS.items()},
}
# Words that say that the provider broke down, and the status that it means.
FAILURE_WORDS: Final = {"ERROR": 502, "TIMEOUT": 504}

encode = msgspec.json.Encoder().encode


def new_id(prefix: str) -> str:
    """Return a new id: the prefix and 24 characters."""
    return prefix + secrets.token_hex(12)


def without_none(**values: Any) -> Record:
    """Return the fields that are stated: null is never sent."""
    return {name: value for name, value in values.items() if value is not None}


def refused(message: str, param: str) -> InvalidRequest:
    """Return the refusal of what cannot be said and would change what the client gets."""
    return InvalidRequest(message, code="unsupported_feature", param=param)


def finish_word(reason: FinishReason, native: str | None) -> str:
    """Return Cohere's word for why a model stopped: the provider's own where it is one for the same."""
    if native == "STOP_SEQUENCE" and reason == "stop":
        return native
    return _WORDS[reason]


_MAIN = ("input_tokens", "output_tokens")


def read_usage(reported: Any) -> Usage | None:
    """Return the counts, or None when none are reported.

    Tokens from a cache are counted from the beginning of the whole prompt: where the bill has fewer tokens than the
    prompt, only as many count as cached as must be.
    """
    if not isinstance(reported, dict):
        return None
    billed, all_of_it = _inside(reported, "billed_units"), _inside(reported, "tokens")
    counts = billed if count_at(billed, "input_tokens") or count_at(billed, "output_tokens") else all_of_it
    prompt, written = count_at(counts, "input_tokens"), count_at(counts, "output_tokens")
    if not prompt and not written:
        return None
    free = max(count_at(all_of_it, "input_tokens") - prompt, 0)
    cached = min(max(count_at(reported, "cached_tokens") - free, 0), prompt)
    odd = has_odd_count(counts, main=_MAIN) or has_odd_count(reported, "cached_tokens")
    return Usage(input=prompt - cached, cache_read=cached, output=written, estimated=odd)


def write_usage(usage: Usage, reported: Any) -> Record:
    """Return `usage`: the gateway's counts, with counts of Cohere's beside them that an answer of its reported."""
    counts = {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}
    stated: Record = reported if isinstance(reported, dict) else {}
    return {
        "cached_tokens": usage.cache_read,
        **stated,
        "billed_units": _inside(stated, "billed_units") | counts,
        "tokens": _inside(stated, "tokens") or counts,
    }


def _inside(record: Record, name: str) -> Record:
    value = record.get(name)
    return value if isinstance(value, dict) else {}


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


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state of a model."""

    reasoning_budget: Annotated[
        dict[str, int] | None,
        fact(
            "the model reasons, within these bounds in tokens (`min`, `max`), and reads its earlier reasoning: an "
            "effort becomes a share of the answer's limit"
        ),
    ] = None
    structured_outputs: Annotated[
        Literal["native", "tool", "json_object"],
        fact(
            "how a JSON schema is kept; beside tools, which Cohere does not take, always by a tool that the client "
            "does not see"
        ),
    ] = "native"
    unsupported: Annotated[frozenset[str], fact("hints that are dropped with a note")] = frozenset()

    @property
    def thinks(self) -> bool:
        """Whether the model thinks, and reads its earlier thinking."""
        return self.reasoning_budget is not None


def capabilities_of(target: Target) -> Capabilities:
    """Return how a chat has to be written for a target."""
    return msgspec.convert(target.facts, Capabilities)
