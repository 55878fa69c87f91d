"""OpenAI Responses, both sides: names on the wire, token usage, and errors of providers.

The counts of usage are OpenAI's under other names: the input includes cached tokens, the output includes thinking.

The facts that a data file may state of a provider or model are here, too; docs/adding-a-dialect.md explains each.
"""

from __future__ import annotations

import re
import secrets
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import Target
from apps.gateway.canonical.events import Failed, OpaqueDelta
from apps.gateway.dialects import Failure, fact
from apps.gateway.dialects.chat.openai import wire as openai_wire
from apps.gateway.dialects.reading.answers import MAX_ERROR_LENGTH, code_of, failure_event, has_odd_count
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.usage import Usage

NAME: Final = "responses"
FRAMING: Final = "sse"

# How thinking of this format is marked on its way through clients (others use the same word): its summary, and what
# only its maker can read. Thinking in the open has a mark of its own, because not every client keeps the two apart.
SIGNATURE_FORMAT: Final = "openai-responses-v1"
UNSIGNED_FORMAT: Final = "openai-responses-v1-text"

# Values of `include`: encrypted thinking, log probabilities.
ENCRYPTED_REASONING: Final = "reasoning.encrypted_content"
LOGPROBS: Final = "message.output_text.logprobs"
# The field beside the input for the system prompt; a client's message that it became bears its name.
INSTRUCTIONS: Final = "instructions"
# Marks where a part of the prompt ends that may be cached.
BREAKPOINT: Final = "prompt_cache_breakpoint"
EXPLICIT: Final = {"mode": "explicit"}

# The prefix of reasoning items' ids.
REASONING_ID: Final = "rs_"

# Ids of items and calls may not be longer.
MAX_ID: Final = 64

encode = msgspec.json.Encoder().encode


# How xAI calls the steps of its `x_search`. A tuple: an unchecked value may be a list, which no set looks up.
_STEPS_OF_X_SEARCH: Final = (
    "x_keyword_search",
    "x_semantic_search",
    "x_user_search",
    "x_thread_fetch",
    "view_x_video",
)


def is_hosted_call(item: dict[str, Any]) -> bool:
    """Return whether an item is a call that its provider runs: no client answers it."""
    return item.get("type") == "custom_tool_call" and item.get("name") in _STEPS_OF_X_SEARCH


# Items whose content the canonical language has words for; any other stands whole in its marks.
TRANSLATED_ITEMS: Final = ("message", "reasoning", "image_generation_call", "function_call", "custom_tool_call")
# The fields of that content.
_CONTENT: Final = frozenset(
    {"content", "summary", "encrypted_content", "arguments", "input", "call_id", "name", "namespace", "result"}
)
# Fields of an event that say where it belongs; the client side has its own.
_PLACES: Final = frozenset({"output_index", "sequence_number"})


def mark(at: int, **data: Any) -> OpaqueDelta:
    """Return a mark for the item that stands `at` this place: one of

    `item` (it begins, or is gone on with), `done` (it is over), `event` (a provider's own event of it), `part` (the
    next part of its text begins), `annotation` (a note on its text that no other format has).
    """
    return OpaqueDelta(dialect=NAME, of="stream", data={"at": at, **data})


def around_of(wire: Record) -> Record:
    """Return the fields of an item besides its content."""
    return {name: value for name, value in wire.items() if name not in _CONTENT}


def unplaced(event: Record) -> Record:
    """Return a provider's event of an item without its place."""
    return {name: value for name, value in event.items() if name not in _PLACES}


def new_id(prefix: str) -> str:
    """Return an id for what a provider gave none: the prefix and 24 characters."""
    return prefix + secrets.token_hex(12)


def without_none(**values: Any) -> Record:
    """Return the fields that are stated: null is never sent."""
    return {name: value for name, value in values.items() if value is not None}


def text_of(value: Any) -> str | None:
    """Return a string that says something, else None."""
    return value if isinstance(value, str) and value else None


_NAMES: Final = {
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "total_tokens": "total_tokens",
    "input_tokens_details": "prompt_tokens_details",
    "output_tokens_details": "completion_tokens_details",
    "cost_in_usd_ticks": "cost_in_usd_ticks",
}


# Calls of tools that xAI counts, by the names of price cards; web searches are counted separately.
_TOOL_COUNTS: Final = {
    "x_search_calls": "x_search",
    "code_interpreter_calls": "code_interpreter",
    "file_search_calls": "file_search",
    "document_search_calls": "document_search",
}
# How Perplexity names its searches of the web, and its other tools by the names of price cards.
_SEARCHED: Final = "search_web"
_INVOKED: Final = {
    "fetch_url": "fetch_url",
    "search_people": "people_search",
    "finance_search": "finance_search",
    "sandbox": "sandbox",
}


def read_usage(reported: Any, searches: int, tool_calls: dict[str, int] | None = None) -> Usage | None:
    """Return the counts, or None when none are reported; `searches` of the web and `tool_calls` were counted in the
    answer: they are used where the provider does not count them itself."""
    if not isinstance(reported, dict):
        return None
    usage = openai_wire.read_usage({ours: reported[name] for name, ours in _NAMES.items() if name in reported})
    if usage is None:
        return None
    counted = reported.get("server_side_tool_usage_details")
    if isinstance(counted, dict):
        calls = {name: openai_wire.count_of(counted, field) for field, name in _TOOL_COUNTS.items()}
        tool_calls = {name: count for name, count in calls.items() if count} or None
        searches = openai_wire.count_of(counted, "web_search_calls")
        if has_odd_count(counted, "web_search_calls", *_TOOL_COUNTS):
            usage = replace(usage, estimated=True)
    if isinstance(counted := reported.get("tool_calls_details"), dict):
        calls = {name: _invocations(counted, field) for field, name in _INVOKED.items()}
        tool_calls = {name: count for name, count in calls.items() if count} or None
        searches = _invocations(counted, _SEARCHED)
        is_odd = any(has_odd_count(counted.get(name), "invocation") for name in (_SEARCHED, *_INVOKED))
        stated = openai_wire.stated_cost(counted.get(_SEARCHED), "cost_usd")
        usage = replace(usage, reported_search_cost=stated, estimated=usage.estimated or is_odd)
    return replace(usage, web_searches=searches, tool_calls=tool_calls)


def _invocations(counted: dict[str, Any], name: str) -> int:
    calls = counted.get(name)
    return openai_wire.count_of(calls, "invocation") if isinstance(calls, dict) else 0


# The status behind the word of an error that comes without one.
_STATUSES: Final = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "insufficient_quota": 429,
    "too_many_requests": 429,
    "server_overloaded": 503,
    "overloaded_error": 503,
    "slow_down": 503,
    "server_error": 502,
    "internal_error": 502,
    "vector_store_timeout": 504,
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "content_policy_violation": 400,
    "bio_policy": 400,
    "misalignment_policy_violation": 400,
    "data_residency_mismatch": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
}
# Words for what the client had sent: prompts and images.
_CLIENTS_OWN = re.compile("invalid_|image_|unsupported_|empty_|failed_to_download_")


def read_failure(status: int, body: bytes) -> Failure:
    """Return what a provider says in an answer that is not 2xx."""
    return openai_wire.read_failure(status, body)


def failed(error: Any) -> Failed:
    """Return the end of an answer that holds an error: that of an event, of a response, or whatever came instead."""
    wire: Record = error if isinstance(error, dict) else {"message": error}
    words, code, kind, param = (wire.get(name) for name in ("message", "code", "type", "param"))
    message = words[:MAX_ERROR_LENGTH] if isinstance(words, str) and words else "The provider gave no reason"
    code = code_of(message, code if isinstance(code, str) and code else None) or code
    word = code if isinstance(code, str) else None
    about = param if isinstance(param, str) and param else None
    return failure_event(Failure(message=message, code=word, param=about), _status(code, kind))


def _status(code: Any, kind: Any) -> int:
    """Return the status of an error: the more specific code counts, and an unknown one is a 502."""
    for word in (code, kind):
        if isinstance(word, int) and 400 <= word <= 599:
            return word
        if isinstance(word, str):
            if word in _STATUSES:
                return _STATUSES[word]
            if _CLIENTS_OWN.match(word):
                return 400
    return 502


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state of a model."""

    developer_role: Annotated[bool, fact("takes the role `developer`, which is sent as `system` otherwise")] = False
    temperature: Annotated[bool, fact("takes `temperature` and `top_p`, which are dropped otherwise")] = True
    model_field: Annotated[
        Literal["model", "preset"],
        fact("the field with the model's name: a `preset` bundles a model with instructions and tools"),
    ] = "model"
    strict: Annotated[
        bool,
        fact("unknown fields are refused: what only OpenAI's own servers know is dropped unless `takes` names it"),
    ] = False
    form_field: Annotated[
        Literal["text", "response_format"],
        fact("the field with the form of the answer; `response_format` is written as in OpenAI's chat format"),
    ] = "text"
    search_limits: Annotated[
        Literal["openai", "domain_filter"],
        fact(
            "how a web search is limited: by `allowed_domains` and an approximate `user_location`, or by a "
            "`search_domain_filter`, which also leaves domains out, by dates, and by a `user_location` without a type"
        ),
    ] = "openai"
    always_searches: Annotated[
        bool,
        fact("the web is searched for each answer, asked or not: a search is added, and demanded beside no other tool"),
    ] = False
    adds: Annotated[dict[str, Any], fact("fields that are sent where the client does not state them")] = {}
    takes: Annotated[
        frozenset[str],
        fact(
            "fields beyond the common ones: `phase` (of an assistant's message), "
            "`prompt_cache_breakpoint` (what `cache_control` marks), and any field of the provider's own"
        ),
    ] = frozenset()
    unsupported: Annotated[
        frozenset[str],
        fact(
            "unsupported fields, by OpenAI's chat format's names: dropped, or refused where the client would miss "
            "it (`logprobs`); besides these `include` (it signs no thinking), `reasoning_summary`, `max_tool_calls`"
        ),
    ] = frozenset()


def capabilities_of(target: Target) -> Capabilities:
    """Return how a chat has to be written for a target."""
    return msgspec.convert(target.facts, Capabilities)
