"""OpenAI Chat Completions, both sides: names on the wire, token usage, error objects.

Differences between OpenAI-alikes are facts (docs/adding-a-dialect.md). Usage is read into disjoint classes. Nonsense
(null, negative, fractions, more parts than whole) is tolerated: every class is at least 0, and the classes add up to
the provider's totals.

The facts that a data file may state of a provider or model are here, too; docs/adding-a-dialect.md explains each.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from apps.gateway.canonical.chat import CacheMark, Chat, Effort, Target
from apps.gateway.canonical.events import Failed, FinishReason, Summary
from apps.gateway.dialects import Failure, fact
from apps.gateway.dialects.reading.answers import (
    MAX_ERROR_LENGTH,
    code_of,
    exact_number,
    failure_event,
    has_odd_count,
    read_count,
    read_refusal,
    read_ticks,
)
from apps.gateway.dialects.reading.fields import Record
from apps.gateway.failures import retry_delay_of
from apps.kernel.concurrency.identity_cache import IdentityCache
from apps.kernel.errors import ApiError
from apps.kernel.usage import Usage

NAME: Final = "openai"
FRAMING: Final = "sse"

EFFORTS: Final[tuple[Effort, ...]] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# How much of the reasoning a summary tells.
SUMMARIES: Final = ("auto", "concise", "detailed")

# Fields of a request that are same_dialect, not OpenAI's: sent on only to providers that take them as they are.
OWN_FIELDS: Final = frozenset(
    {"reasoning", "effort", "web_search", "free_models_only", "no_reasoning", "plugins", "image_config"}
)

# Where an answer parks what OpenAI's own types refuse, or what a field of the gateway's hides.
PARKED: Final = "provider_specific_fields"

# How thinking that came signed as a part of the content is marked on its way through clients.
PART_FORMAT: Final = "thinking-part"

# Providers' words for why a model stopped, in lower case. A word not listed is taken for `stop`.
FINISH_REASONS: Final[dict[str, FinishReason]] = {
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "content_filtered": "content_filter",
    "refusal": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
    "sensitive": "content_filter",
}
# Words that say that the provider broke down.
FAILURE_WORDS: Final = frozenset({"error", "network_error", "insufficient_system_resource"})

_ENCODER = msgspec.json.Encoder(decimal_format="number")
encode = _ENCODER.encode
# A body's fields, and a list's entries, each as its bytes.
read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
read_entries = msgspec.json.Decoder(list[msgspec.Raw]).decode


def cache_control(mark: CacheMark) -> dict[str, Any]:
    """Return a cache mark as Anthropic and those who follow it write it."""
    return {"type": "ephemeral"} if mark.ttl is None else {"type": "ephemeral", "ttl": mark.ttl}


def new_id(prefix: str) -> str:
    """Return an id for what a provider gave none: the prefix and 24 characters."""
    return prefix + secrets.token_hex(12)


# Fields that do not describe parts of the counts.
_TOTALS = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})
# The counts that an answer always has, and those beside them and inside them that are read.
_MAIN = ("prompt_tokens", "completion_tokens")
_BESIDE = (
    *("reasoning_tokens", "prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens"),
    *("cache_creation_input_tokens", "num_search_queries"),
)
_INSIDE = ("cached_tokens", "cache_write_tokens", "audio_tokens", "image_tokens", "reasoning_tokens")
# Anthropic's name for tokens that were written to a cache.
_STORED = "cache_creation_input_tokens"
_FREE = Decimal(0)
_SERVER_TOOLS = ("server_tool_use_details", "server_tool_use")
# USD: no search costs more.
_MAX_STATED_COST = 100


def read_usage(reported: Any) -> Usage | None:
    """Return the counts, or None when none are reported; a provider that counts nothing on both sides says 0."""
    if not isinstance(reported, dict):
        return None
    prompt, completion = count_of(reported, "prompt_tokens"), count_of(reported, "completion_tokens")
    if not prompt and not completion:
        both = reported.get("prompt_tokens"), reported.get("completion_tokens")
        return Usage() if all(type(count) is int and not count for count in both) else None
    if reported.keys() <= _TOTALS:
        return Usage(input=prompt, output=completion, estimated=has_odd_count(reported, main=_MAIN))
    read, written = _inside(reported, "prompt_tokens_details"), _inside(reported, "completion_tokens_details")
    cached = _first(read, "cached_tokens") or _first(
        reported, "prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens"
    )
    stored = _first(read, "cache_write_tokens", _STORED) or _first(reported, _STORED)
    if max(cached, stored) > prompt:
        # Servers that count like Anthropic leave both out of the prompt.
        prompt += cached + stored
    # Some servers report tokens that were just written as read as well.
    stored = min(stored, prompt - cached)
    text = prompt - cached - stored
    media = _inside(read, "cached_tokens_details")
    cached_audio = min(_first(media, "audio_tokens"), cached)
    audio = min(_first(read, "audio_tokens"), text)
    images = min(_first(read, "image_tokens"), text - audio)

    thought = _first(written, "reasoning_tokens") or _first(reported, "reasoning_tokens")
    total = count_of(reported, "total_tokens")
    if thought and total == count_of(reported, "prompt_tokens") + completion + thought:
        # Servers that count like xAI leave thinking out of the completion; the total shows it.
        completion += thought
    elif "citation_tokens" in reported:
        # Servers that count like Perplexity leave it out of the total as well.
        completion += thought
    thought = min(thought, completion)
    audio_out = min(_first(written, "audio_tokens"), completion - thought)
    images_out = min(_first(written, "image_tokens"), completion - thought - audio_out)
    return Usage(
        input=text - audio - images,
        cache_read=cached,
        cache_write=stored,
        cache_read_audio=cached_audio,
        cache_read_image=min(_first(media, "image_tokens"), cached - cached_audio),
        audio_input=audio,
        image_input=images,
        output=completion - thought - audio_out - images_out,
        reasoning=thought,
        audio_output=audio_out,
        image_output=images_out,
        web_searches=_searches(reported),
        search_size=size if isinstance(size := reported.get("search_context_size"), str) and len(size) < 20 else "",
        estimated=_has_odd_counts(reported, read, written),
        reported_search_cost=stated_cost(reported.get("cost"), "request_cost"),
        reported_cost=read_ticks(reported),
    )


def _has_odd_counts(reported: Record, read: Record, written: Record) -> bool:
    """Return whether some count is none: then the bill is an estimate."""
    return (
        has_odd_count(reported, *_BESIDE, main=_MAIN)
        or has_odd_count(read, *_INSIDE)
        or has_odd_count(written, *_INSIDE)
        or has_odd_count(read.get("cached_tokens_details"), *_INSIDE)
        or any(has_odd_count(reported.get(name), "web_search_requests") for name in _SERVER_TOOLS)
    )


def stated_cost(report: Any, name: str) -> Decimal | None:
    """Return what Perplexity says that it takes for its search, in USD, beside what it takes for tokens."""
    stated = report.get(name) if isinstance(report, dict) else None
    if not isinstance(stated, int | float | Decimal) or isinstance(stated, bool) or not 0 <= stated <= _MAX_STATED_COST:
        return None
    return Decimal(str(stated))


def _searches(reported: Record) -> int:
    """Return the number of web searches; one where only their extent is reported."""
    inner = next((tools for name in _SERVER_TOOLS if (tools := _inside(reported, name))), {})
    found = _first(inner, "web_search_requests") or count_of(reported, "num_search_queries")
    priced = stated_cost(reported.get("cost"), "request_cost") is not None
    return found or int(priced or isinstance(reported.get("search_context_size"), str))


def write_usage(summary: Summary, *, live: bool = False, details: bool = False) -> Record:
    """Return `usage` with its cost in USD; of a `live` answer also in OpenRouter's words, with `details` its parts."""
    usage, cost = summary.usage, summary.cost
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "reasoning_tokens": usage.reasoning,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write + usage.cache_write_1h,
            "audio_tokens": usage.audio_input,
            "image_tokens": usage.image_input,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning,
            "audio_tokens": usage.audio_output,
            "image_tokens": usage.image_output,
        },
        **({"cost": exact_number(cost["total"])} if live and "total" in cost else {}),
        **({"cost_details": _cost_details(cost)} if details else {}),
        **{f"cost_usd_{part}": exact_number(amount) for part, amount in cost.items()},
    }


def _cost_details(cost: dict[str, Decimal]) -> Record:
    prompt = cost.get("input", _FREE) + cost.get("cached_input", _FREE)
    return {
        "upstream_inference_cost": None,
        "upstream_inference_prompt_cost": exact_number(prompt),
        "upstream_inference_completions_cost": exact_number(cost.get("output", _FREE)),
    }


def _inside(record: Record, name: str) -> Record:
    """Return an object inside, an empty one when there is none."""
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def _first(record: Record, *names: str) -> int:
    """Return the first count under these names that is not 0."""
    if record:
        for name in names:
            if count := count_of(record, name):
                return count
    return 0


def count_of(record: Record, name: str) -> int:
    """Return a count; 0 for any other value."""
    return read_count(record.get(name))


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


def citations_of(pages: Any) -> list[Record]:
    """Return a `url_citation` for each page of a list of addresses or of `{url, title}`, in the order in which the text
    counts them.

    The lists do not tell which part of the text a page is cited for: the citation covers no characters.
    """
    found = map(_page, pages if isinstance(pages, list) else ())
    return [
        {"type": "url_citation", "url_citation": {"start_index": 0, "end_index": 0, **page}} for page in found if page
    ]


def _page(entry: Any) -> Record | None:
    """Return a page's address and title, which is the address where there is none."""
    url = entry.get("url") if isinstance(entry, dict) else entry
    if not isinstance(url, str) or not url:
        return None
    title = entry.get("title") if isinstance(entry, dict) else None
    return {"url": url, "title": title if isinstance(title, str) and title else url}


CallIds: TypeAlias = Literal["any", "short", "nine_alphanumerics"]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state of a provider of this dialect. The defaults fit most OpenAI-alikes."""

    max_tokens_field: Annotated[
        Literal["max_tokens", "max_completion_tokens"],
        fact("the name of the limit on the answer, whichever of the two the client uses"),
    ] = "max_tokens"
    stream_usage: Annotated[
        bool, fact("takes `stream_options`; without it usage is reported unasked or not at all")
    ] = True
    developer_role: Annotated[bool, fact("takes the role `developer`, which is sent as `system` otherwise")] = False
    reasoning_field: Annotated[
        Literal["reasoning", "reasoning_content", "content", "any"] | None,
        fact(
            "the field of an assistant's message that brings its reasoning back; `content`: as parts of the kind "
            "`thinking`, before the text; `any`: it is not known, so the client's field stays, and "
            "`reasoning_content` says the same"
        ),
    ] = None
    reasoning_required: Annotated[
        Literal["calls", "answers"] | None,
        fact(
            "an earlier answer without that field is refused, `calls`: where it has tool calls, `answers`: always; "
            "where the client did not keep its reasoning, a blank is sent"
        ),
    ] = None
    thinking_switch: Annotated[
        Literal["reasoning_effort", "thinking", "enable_thinking"],
        fact(
            "how reasoning is switched on and off: by an effort; by `thinking`, `{type}`, with an effort where "
            "`reasoning_efforts` are stated; by `enable_thinking`, with a `thinking_budget` for an exact number of "
            "tokens, or for an effort below `high` where a `reasoning_budget` is stated"
        ),
    ] = "reasoning_effort"
    reasoning_efforts: Annotated[
        tuple[str, ...],
        fact("the efforts that the model knows: any other is sent as the nearest, with a note", default="as it comes"),
    ] = ()
    reasoning_budget: Annotated[
        dict[str, int] | None, fact("bounds in tokens (`min`, `max`) of a model that takes a budget for reasoning")
    ] = None
    forced_choice_unthinking: Annotated[
        bool, fact("a model that has to call a tool cannot reason: reasoning is switched off")
    ] = False
    tool_choices: Annotated[
        frozenset[Literal["auto", "none", "required", "named"]],
        fact(
            "the tool choices that are understood; for `none` no tools are sent, the others are refused",
            default="all four",
        ),
    ] = frozenset({"auto", "none", "required", "named"})
    tool_call_ids: Annotated[
        CallIds,
        fact(
            "the form of tool call ids: `any`, at most 40 characters, or nine letters and digits. An id that does not "
            "fit becomes its digest, the same in call and result"
        ),
    ] = "short"
    message_names: Annotated[bool, fact("messages may have names, which are dropped otherwise")] = True
    speaks_after_tools: Annotated[
        bool, fact("a user may speak right after a tool; otherwise the model says `OK` in between")
    ] = True
    prefill_field: Annotated[
        Literal["prefix", "partial"] | None,
        fact("the field that marks a last message of the assistant's as one to continue"),
    ] = None
    media_parts: Annotated[
        Literal["openai", "flat"],
        fact("`flat`: a document is a `document_url` with a `document_name`, audio is base64 alone"),
    ] = "openai"
    seed_field: Annotated[Literal["seed", "random_seed"], fact("the name of the seed")] = "seed"
    strict: Annotated[
        bool,
        fact(
            "unknown fields are refused: nothing passes as it came, and what only the client's format knows is dropped "
            "unless `takes` names it"
        ),
    ] = False
    adds: Annotated[dict[str, Any], fact("fields that are sent where the client does not state them")] = {}
    takes: Annotated[
        frozenset[str],
        fact(
            "features beyond OpenAI's format: of a request `reasoning`, `effort`, `plugins`, `image_config`, "
            "`web_search`, `web_search_options`; of a message `reasoning_details`, `images`; of parts and tools "
            "`cache_control`; of a call `extra_content`; and any field of the provider's own"
        ),
    ] = frozenset()
    unsupported: Annotated[
        frozenset[str],
        fact("OpenAI's fields that are refused: dropped with a note, or refused where the client would miss them"),
    ] = frozenset()


class Capabilities(Facts, frozen=True, kw_only=True):
    """The facts of a provider, as they apply to one chat."""

    # Whether the chat was read from this format: what it keeps as `extra` belongs here.
    same_dialect: bool = False

    @property
    def must_rewrite(self) -> bool:
        """Whether a request is always rewritten, never passed on as it came."""
        return self.strict or self.reasoning_field == "content" or self.media_parts == "flat"


def capabilities_of(chat: Chat, target: Target) -> Capabilities:
    """Return how a chat has to be written for a target."""
    facts = target.facts
    return (_same_dialect if chat.dialect == NAME and not facts.get("strict", False) else _other_dialect)(facts)


def _read(facts: Mapping[str, Any], *, same_dialect: bool) -> Capabilities:
    return msgspec.convert({**facts, "same_dialect": same_dialect}, Capabilities)


_same_dialect, _other_dialect = (
    IdentityCache(partial(_read, same_dialect=True)),
    IdentityCache(partial(_read, same_dialect=False)),
)
