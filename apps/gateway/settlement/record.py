"""Request record: a request's log entry, from its admission to its end, as far as retention allows.

Each retention level forbids some of its fields. Those that a model's answer fills have bounds: text that is cut ends
with a mark that counts the missing characters. Images and audio are encrypted here, so that they are nowhere in clear
on their way to the row.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64Error
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final
from uuid import UUID

import msgspec

from apps.billing.pricing import Bill, Cost, bill_at, cost_by, price_storage
from apps.gateway.access.policy import Policy
from apps.gateway.canonical.chat import Chat, FunctionTool, ToolResult
from apps.gateway.canonical.events import Choice, Reply
from apps.gateway.client.http_request import ClientRequest
from apps.gateway.dialects import ClientDialect, client_dialect_of
from apps.gateway.metrics import RouteName
from apps.gateway.routing.candidate import Candidate
from apps.gateway.routing.request_profile import logged_session
from apps.gateway.settlement.outbox import ENCODER, encode
from apps.kernel.errors import ApiError, InvalidRequest
from apps.kernel.money import ZERO
from apps.kernel.prices import PriceCard
from apps.kernel.secrets.encryption import encrypt_content
from apps.kernel.usage import total_usage
from apps.logs.answers import MAX_MEDIA, MAX_MEDIA_BYTES, audio_type_of
from apps.logs.entry import Entry

_UNIFIED = {
    "stop": "completed",
    "length": "length_limit",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}


def open_entry(identifier: UUID, route: RouteName, policy: Policy, request: ClientRequest, chat: Chat) -> Entry:
    """Return the record of a request that has just been admitted, valid even if it is never finished."""
    entry = Entry(
        id=identifier,
        request_id=request.request_id,
        organization_id=policy.organization_id,
        project_id=policy.project_id,
        api_key_id=policy.api_key_id,
        route=route,
        requested_model=chat.model[:255],
        mode=policy.mode,
        used_mode=policy.mode if policy.mode != "hybrid" else "credits",
        streamed=chat.stream,
        unified_finish_reason="gateway_error",
        status_code=500,
        has_error=True,
        error_details={"status": 500, "code": "worker_lost"},
        swept=True,
        retention_level=policy.retention,
    )
    if policy.retention != "none":
        _keep_parameters(entry, chat, request)
    return entry


def keep_request(entry: Entry, chat: Chat, retention: str) -> None:
    """Keep the request in the client's format, once everything that must not be stored is out of it."""
    if retention == "none":
        return
    # The images API is OpenAI's too.
    dialect = client_dialect_of(chat.dialect or "openai")
    if chat.tool_choice is not None:
        entry.tool_choice = dialect.logged_choice(chat.tool_choice, chat.parallel_tool_calls)
    if chat.tools:
        entry.tools = [tool.name for tool in chat.tools if isinstance(tool, FunctionTool)]
    entry.response_format = {"type": chat.response_format.kind} if chat.response_format else None
    if retention == "retain":
        _keep_content(entry, chat, dialect)


def write_ahead_note(entry: Entry) -> str:
    """Return the entry, which has no content yet, as the write-ahead note that the sweeper turns into a row."""
    return ENCODER.encode(entry).decode()


def set_provider(entry: Entry, candidate: Candidate, requested_provider: str | None) -> None:
    """Write down who answers."""
    entry.requested_provider = requested_provider
    entry.used_model = candidate.model_id
    entry.used_provider = candidate.provider_id
    entry.underlying_model = candidate.model_name
    entry.used_mode = candidate.credential.mode
    entry.provider_key_id = candidate.credential.provider_key_id
    entry.prices = candidate.offer.prices


def set_usage_and_cost(entry: Entry, bill: Bill) -> Cost:
    """Record the usage, and its cost by the bill's prices; return the cost."""
    usage, cost = bill.used, cost_by(bill)
    entry.prices = bill
    if usage.passes:
        usage = total_usage(one.usage for one in usage.passes)
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    entry.prompt_tokens = prompt
    entry.completion_tokens = completion
    entry.total_tokens = prompt + completion
    entry.reasoning_tokens = usage.reasoning or None
    entry.cached_tokens = usage.cache_read
    entry.cache_write_tokens = (usage.cache_write + usage.cache_write_1h) or None
    entry.image_input_tokens = usage.image_input or None
    entry.image_output_tokens = usage.image_output or None
    entry.estimated_cost = bill.used.estimated
    entry.cost = cost.total
    entry.input_cost = cost.input
    entry.output_cost = cost.output
    entry.cached_input_cost = cost.cached_input
    entry.cache_write_cost = cost.cache_write
    entry.request_cost = cost.request
    entry.web_search_cost = cost.web_search
    entry.image_input_cost = cost.image_input
    entry.image_output_cost = cost.image_output
    entry.data_storage_cost = ZERO if bill.waived else price_storage(prompt + completion, entry.retention_level)
    entry.discount_savings = cost.discount_savings
    entry.unpriced = cost.unpriced
    return cost


def complete(entry: Entry, finish: str | None, native: str | None, retention: str) -> None:
    """Write down that the answer came to its end."""
    entry.swept = False
    entry.status_code, entry.has_error, entry.canceled, entry.error_details = 200, False, False, None
    entry.unified_finish_reason = _UNIFIED.get(finish or "", "unknown")
    if retention != "none":
        entry.finish_reason = native or finish


def fail(entry: Entry, error: ApiError, retention: str) -> None:
    """Write down that the request ended in an error, or because its client left."""
    entry.swept = False
    entry.status_code = error.status
    entry.canceled = error.status == 499
    entry.has_error = not entry.canceled
    entry.unified_finish_reason = _unified_of(error)
    entry.error_details = {"status": error.status, "type": error.type, "code": error.code}
    if retention == "retain":
        # A provider's words may quote the request.
        entry.error_details["message"] = error.message
    if entry.cost is None:
        set_usage_and_cost(entry, bill_at(entry.prices or PriceCard(), waived="failed"))


def encode_with_answer(entry: Entry, chat: Chat, reply_of: Callable[[], Reply], speech: bytes | None) -> bytes:
    """Keep the model's answer, for organizations that retain content, and return the record as JSON."""
    keep_answer(entry, chat, reply_of(), speech)
    return encode(entry)


def _unified_of(error: ApiError) -> str:
    if error.status == 499:
        return "canceled"
    if error.from_provider:
        return "upstream_error"
    return "gateway_error" if error.status >= 500 else "client_error"


def _keep_parameters(entry: Entry, chat: Chat, request: ClientRequest) -> None:
    entry.temperature, entry.top_p, entry.max_tokens = chat.temperature, chat.top_p, chat.max_tokens
    entry.frequency_penalty, entry.presence_penalty = chat.frequency_penalty, chat.presence_penalty
    if chat.reasoning is not None:
        entry.reasoning_effort, entry.reasoning_max_tokens = chat.reasoning.effort, chat.reasoning.max_tokens
    entry.custom_headers, entry.source = request.custom_headers, request.source
    entry.session_id, entry.user_agent = logged_session(request, chat), request.user_agent
    if chat.preferences is not None and chat.preferences.tags:
        # Where tags of a request can be looked for and exported.
        tags = {f"tag:{tag}": "true" for tag in chat.preferences.tags}
        entry.custom_headers = {**(entry.custom_headers or {}), **tags}


def _keep_content(entry: Entry, chat: Chat, dialect: ClientDialect) -> None:
    try:
        asked = dialect.logged_request(chat)
    except InvalidRequest:
        # No request is refused for the log's sake.
        asked = {"messages": chat.messages, "tools": chat.tools, "tool_choice": entry.tool_choice}
    entry.messages, entry.tools = asked["messages"], asked.get("tools")
    entry.tool_choice, entry.response_format = asked.get("tool_choice"), asked.get("response_format")
    if ToolResult in chat.kinds:
        entry.tool_results = dialect.logged_results(msgspec.json.decode(ENCODER.encode(entry.messages))) or None


# Calls of tools, names of called tools, and citations in a record.
MAX_CALLS: Final = 256
MAX_CALLED_NAMES: Final = 64
MAX_CITATIONS: Final = 256
# Characters: of one call's arguments, of all calls' arguments, of a refusal, of a name or an id.
MAX_ARGUMENTS: Final = 65_536
MAX_ALL_ARGUMENTS: Final = 1_048_576
MAX_REFUSAL: Final = 65_536
MAX_NAME: Final = 255
# Bytes of one citation as JSON.
MAX_CITATION: Final = 16_384
_ENCODER = msgspec.json.Encoder()


def count_call(counts: dict[str, int], name: str) -> None:
    """Count a call of the tool `name`; names past the bound are counted together."""
    name = name[:MAX_NAME]
    if name not in counts and len(counts) >= MAX_CALLED_NAMES:
        name = "…"
    counts[name] = counts.get(name, 0) + 1


def keep_answer(entry: Entry, chat: Chat, reply: Reply, speech: bytes | None = None) -> None:
    """Write the answer to a chat into its record; `speech` is audio of a text that was read aloud.

    With several choices, `content` and `refusal` have all of their texts, one after another, and `choices` has the
    length of each: no text is stored twice.
    """
    choices = reply.choices
    entry.content = _joined(choice.text for choice in choices)
    entry.reasoning_content = "".join(block.text for choice in choices for block in choice.reasoning) or None
    refusal = _joined(choice.refusal for choice in choices)
    entry.refusal = None if refusal is None else _cut(refusal, MAX_REFUSAL)
    entry.tool_calls = _calls_of(choices) or None
    entry.citations = _citations_of(choices) or None
    if len(choices) > 1 and any(choice.text or choice.refusal or choice.tool_calls for choice in choices):
        entry.choices = [_outline_of(number, choice) for number, choice in enumerate(choices)]
    entry.media, entry.media_data = _store(_media_of(choices, speech, _audio_format_of(chat)), str(entry.id))


def _joined(texts: Iterator[str | None]) -> str | None:
    return "\n".join(text for text in texts if text is not None) or None


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}… [{len(text) - length} more characters]"


def _outline_of(number: int, choice: Choice) -> dict[str, Any]:
    lengths = {"contentLength": choice.text, "refusalLength": choice.refusal}
    return {
        "index": number,
        "finishReason": choice.native_finish or choice.finish,
        **{name: len(text) for name, text in lengths.items() if text is not None},
    }


def _of_choice(number: int) -> dict[str, int]:
    """Return the mark of a part of another choice than the first."""
    return {"choice": number} if number else {}


def _calls_of(choices: Sequence[Choice]) -> list[dict[str, Any]]:
    calls, left, number_of_calls = list[dict[str, Any]](), MAX_ALL_ARGUMENTS, 0
    for number, choice in enumerate(choices):
        for call in choice.tool_calls:
            number_of_calls += 1
            if len(calls) == MAX_CALLS:
                continue
            arguments = _cut(call.arguments, min(MAX_ARGUMENTS, left))
            left = max(0, left - len(arguments))
            one = {"id": call.id[:MAX_NAME], "name": call.name[:MAX_NAME], "arguments": arguments}
            calls.append({**one, **_of_choice(number)})
    return _marked(calls, number_of_calls)


def _citations_of(choices: Sequence[Choice]) -> list[dict[str, Any]]:
    citations = [
        {**annotation, **_of_choice(number)}
        for number, choice in enumerate(choices)
        for annotation in choice.annotations
    ]
    return _marked([_bounded(one) for one in citations[:MAX_CITATIONS]], len(citations))


def _bounded(citation: dict[str, Any]) -> dict[str, Any]:
    size = len(_ENCODER.encode(citation))
    return citation if size <= MAX_CITATION else {"type": str(citation.get("type"))[:MAX_NAME], "omittedBytes": size}


def _marked(kept: list[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    """Return a list with the number of the values that it lacks as its last value."""
    return [*kept, {"omitted": number - len(kept)}] if number > len(kept) else kept


def _audio_format_of(chat: Chat) -> object:
    """Return the name of the format that audio was asked for in."""
    return chat.speech.response_format if chat.speech is not None else (chat.audio or {}).get("format")


# A description, and the bytes where the answer has them.
_Medium = tuple[dict[str, Any], bytes | None]


def _store(media: Iterator[_Medium], name: str) -> tuple[list[dict[str, Any]] | None, str | None]:
    """Return the descriptions of images and audio, and the encrypted bytes of those that are stored."""
    described, stored, left = list[dict[str, Any]](), list[bytes](), MAX_MEDIA_BYTES
    for description, data in islice(media, MAX_MEDIA):
        is_stored = data is not None and len(data) <= left
        if data is not None:
            description["size"] = len(data)
            if is_stored:
                stored.append(data)
                left -= len(data)
        described.append({**description, "stored": is_stored})
    return described or None, encrypt_content(b"".join(stored), name).decode() if stored else None


def _media_of(choices: Sequence[Choice], speech: bytes | None, audio_format: object) -> Iterator[_Medium]:
    audio_type = audio_type_of(audio_format)
    for number, choice in enumerate(choices):
        of_choice = _of_choice(number)
        for url in choice.images:
            if url.startswith("data:"):
                head, _, text = url.partition(",")
                content_type = head.removeprefix("data:").partition(";")[0][:MAX_NAME]
                yield {"kind": "image", "contentType": content_type, **of_choice}, _decoded(text)
            else:
                yield {"kind": "image", "url": _cut(url, MAX_CITATION), **of_choice}, None
        if choice.audio is not None and choice.audio.data:
            transcript = {"transcript": _cut(choice.audio.transcript, MAX_REFUSAL)} if choice.audio.transcript else {}
            yield {"kind": "audio", "contentType": audio_type, **transcript, **of_choice}, _decoded(choice.audio.data)
    if speech:
        yield {"kind": "audio", "contentType": audio_type}, speech


def _decoded(text: str) -> bytes:
    """Return the bytes of base64; none of text that is no base64."""
    try:
        return b64decode(text)
    except (NotBase64Error, ValueError):
        return b""
