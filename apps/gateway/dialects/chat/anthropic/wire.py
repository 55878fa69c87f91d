"""Anthropic Messages, both sides: names on the wire, token usage, error objects.

Usage is read into disjoint classes. Anthropic's `input_tokens` exclude tokens that were read from or written to the
cache. Nonsense is tolerated: every class is at least 0.

The facts that a data file may state of a provider or model are here, too; docs/adding-a-dialect.md explains each.
"""

from __future__ import annotations

import re
import secrets
from typing import Annotated, Any, Final

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import FAST_TIER, USUAL_TIER, CacheMark, Target
from apps.gateway.canonical.events import Failed, FinishReason
from apps.gateway.dialects import Failure, fact
from apps.gateway.dialects.reading.answers import (
    MAX_ERROR_LENGTH,
    anthropic_message,
    code_of,
    count_at,
    failure_event,
    has_odd_count,
    message_with_field,
    read_refusal,
)
from apps.gateway.dialects.reading.fields import BOUNDS, Record, is_empty_arguments
from apps.kernel.concurrency.identity_cache import IdentityCache
from apps.kernel.errors import ApiError, InvalidRequest
from apps.kernel.json_bounds import decode_text_within
from apps.kernel.rest.envelopes import anthropic_type
from apps.kernel.usage import ModelPass, Usage, total_usage

# The kinds of citations of documents: a place in one that the request has. Other formats cite pages of the web alone.
CITATION_LOCATIONS: Final = ("char_location", "page_location", "content_block_location", "search_result_location")
# The field of a call that says whether the model made it, or a program at the provider.
CALLER: Final = "caller"
# The field of a message that says why its provider refused to answer.
STOP_DETAILS: Final = "stop_details"
NAME: Final = "anthropic"
FRAMING: Final = "sse"
VERSION: Final = "2023-06-01"
# Models of this format do not think unless they are asked to.
THINKS_WHEN_ASKED: Final = True

# How thinking that Anthropic signed is marked: only its maker takes the signature back.
SIGNATURE_FORMAT: Final = "anthropic-claude-v1"

# Anthropic's words for why a model stopped. A word not listed is taken for `stop`.
FINISH_REASONS: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
STOP_REASONS: Final[dict[FinishReason, str]] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}

encode = msgspec.json.Encoder().encode


def cache_control(mark: CacheMark) -> dict[str, Any]:
    """Return a cache mark."""
    return {"type": "ephemeral"} if mark.ttl is None else {"type": "ephemeral", "ttl": mark.ttl}


def read_input(arguments: str) -> msgspec.Raw:
    """Return a call's arguments as the object that the format wants: as they were written where they are one.

    No text at all, or JSON's null, means no arguments; text that is no object is put into one, as `arguments`.
    """
    if is_empty_arguments(arguments):
        return msgspec.Raw(b"{}")
    try:
        is_object = isinstance(decode_text_within(arguments, BOUNDS), dict)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        is_object = False
    return msgspec.Raw(arguments.encode()) if is_object else msgspec.Raw(encode({"arguments": arguments}))


def new_id(prefix: str) -> str:
    """Return an id for what a provider gave none: the prefix and 24 characters."""
    return prefix + secrets.token_hex(12)


def call_id(name: str) -> str:
    """Return a call's id with nothing in it that Anthropic refuses; the same for a call and its result."""
    return _NOT_IN_IDS.sub("_", name)


_NOT_IN_IDS = re.compile("[^a-zA-Z0-9_-]")


# Counts that are read and written here; what else is said in `usage` is passed on.
COUNTS = frozenset(
    {
        "input_tokens",
        "output_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
        "cache_creation",
        "server_tool_use",
        "output_tokens_details",
    }
)
# Passes over models that a bill keeps one by one; of more than these, those over one model are added up.
MAX_PASSES = 100
_MAIN = ("input_tokens", "output_tokens")
_SPEEDS = {"fast": FAST_TIER, "standard": USUAL_TIER}


def read_usage(reported: Record) -> Usage | None:
    """Return the counts, or None when none are reported: a prompt has at least one token.

    The 5-minute and 1-hour parts of the cached tokens may fall short of the total: the rest counts as 5-minute.
    """
    usage = _tokens(reported)
    calls = reported.get("server_tool_use")
    fetched = count_at(calls, "web_fetch_requests")
    usage = replace(
        usage,
        web_searches=count_at(calls, "web_search_requests"),
        tool_calls={"web_fetch": fetched} if fetched else None,
        service_tier=_SPEEDS.get(str(reported.get("speed")), ""),
        region=_region(reported.get("inference_geo")),
    )
    if passes := _passes(reported.get("iterations"), usage):
        usage = replace(usage, passes=passes)
    return usage if usage.total_tokens or passes else None


def _passes(iterations: Any, whole: Usage) -> tuple[ModelPass, ...]:
    """Return the passes that an answer took over models; none where there was one, which the counts beside it tell.

    The counts beside leave out what compaction and an advisor used, and what an executor read again in between.
    """
    if not isinstance(iterations, list):
        return ()
    passes = []
    for iteration in iterations:
        if isinstance(iteration, dict) and (used := _tokens(iteration)).total_tokens:
            model = iteration.get("model")
            passes.append(ModelPass(model=model[:200] if isinstance(model, str) else "", usage=used))
    if len(passes) == 1 and passes[0].usage.total_tokens == whole.total_tokens and not passes[0].model:
        return ()
    if len(passes) <= MAX_PASSES:
        return tuple(passes)
    models = dict.fromkeys(one.model for one in passes)
    return tuple(
        ModelPass(model=model, usage=total_usage(one.usage for one in passes if one.model == model)) for model in models
    )[:MAX_PASSES]


def _region(geography: Any) -> str:
    if not isinstance(geography, str) or not geography:
        return ""
    return "global" if geography == "not_available" else geography[:40]


def _tokens(reported: Record) -> Usage:
    cache = reported.get("cache_creation")
    split: Record = cache if isinstance(cache, dict) else {}
    hour = count_at(split, "ephemeral_1h_input_tokens")
    written = max(
        count_at(reported, "cache_creation_input_tokens"), hour + count_at(split, "ephemeral_5m_input_tokens")
    )
    output = count_at(reported, "output_tokens")
    thought = min(count_at(reported.get("output_tokens_details"), "thinking_tokens"), output)
    odd = (
        has_odd_count(reported, "cache_creation_input_tokens", "cache_read_input_tokens", main=_MAIN)
        or has_odd_count(split, "ephemeral_1h_input_tokens", "ephemeral_5m_input_tokens")
        or has_odd_count(reported.get("output_tokens_details"), "thinking_tokens")
        or has_odd_count(reported.get("server_tool_use"), "web_search_requests", "web_fetch_requests")
    )
    return Usage(
        estimated=odd,
        input=count_at(reported, "input_tokens"),
        cache_read=count_at(reported, "cache_read_input_tokens"),
        cache_write=written - hour,
        cache_write_1h=hour,
        output=output - thought,
        reasoning=thought,
    )


def write_usage(usage: Usage) -> Record:
    """Return `usage`."""
    written = usage.cache_write + usage.cache_write_1h
    wire: Record = {
        "input_tokens": usage.prompt_tokens - usage.cache_read - written,
        "output_tokens": usage.completion_tokens,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": usage.cache_read,
    }
    if written:
        wire["cache_creation"] = {
            "ephemeral_5m_input_tokens": usage.cache_write,
            "ephemeral_1h_input_tokens": usage.cache_write_1h,
        }
    if usage.reasoning:
        wire["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    fetched = (usage.tool_calls or {}).get("web_fetch", 0)
    if usage.web_searches or fetched:
        # Clients expect both numbers where there is one.
        wire["server_tool_use"] = {"web_search_requests": usage.web_searches, "web_fetch_requests": fetched}
    return wire


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
    elif message is error.message:
        message = message_with_field(error)
    error_object: dict[str, Any] = {"type": anthropic_type(error.status), "message": message}
    if error.code == UNTHREADED:
        error_object["details"] = {"error_code": UNTHREADED, "unsupported": ["thread"]}
    return error_object


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state of a provider or model."""

    reasoning_budget: Annotated[
        dict[str, int | None] | None,
        fact(
            "the model takes a budget of tokens for thinking: an effort becomes a share of the answer's limit; without "
            "it an effort is sent as `output_config.effort` beside adaptive thinking"
        ),
    ] = None
    reasoning_efforts: Annotated[
        tuple[str, ...] | None,
        fact("the efforts that the model knows: any other is sent as the nearest, with a note", default="as it comes"),
    ] = None
    temperature: Annotated[bool, fact("takes sampling parameters, which are dropped otherwise")] = True
    prefill: Annotated[
        bool, fact("takes a conversation that ends with an answer that is begun, which is refused otherwise")
    ] = True
    betas: Annotated[
        frozenset[str] | None,
        fact(
            "the previews (`anthropic-beta`) that the provider takes; others that a client asks for are dropped",
            default="all",
        ),
    ] = None
    unsupported: Annotated[tuple[str, ...], fact("fields that are refused: dropped with a note")] = ()


def capabilities_of(target: Target) -> Capabilities:
    """Return how a chat has to be written for a target."""
    return _capabilities(target.facts)


def _read(facts: dict[str, Any]) -> Capabilities:
    return msgspec.convert(facts, Capabilities)


_capabilities = IdentityCache(_read)
