"""Chats and replies that Bedrock's Converse can say, in normal form: one answer, thinking before words before calls."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec.structs import replace

from apps.gateway.canonical.chat import (
    Audio,
    CacheMark,
    Chat,
    File,
    FunctionTool,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    ReasoningRequest,
    ResponseFormat,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from apps.gateway.canonical.events import Choice, ReasoningDelta, Reply, WholeCall
from apps.kernel.usage import Usage
from tests.support.canonical_chats import counts, maybe, records, unknown, words

SEAL = "anthropic-claude-v1"
# Five minutes are the lifetime that goes without saying.
marks = st.none() | st.builds(CacheMark, ttl=st.sampled_from((None, "1h")))
said = words.filter(lambda text: bool(text.strip()))
ids = st.from_regex(r"[a-zA-Z0-9_.:-]{1,9}", fullmatch=True)
names = st.from_regex(r"[a-zA-Z0-9_-]{1,9}", fullmatch=True)
# Arguments as the format has them: an object, compact.
arguments = records.map(lambda record: msgspec.json.encode(record).decode())


@st.composite
def replies(draw: st.DrawFn, dialect: str) -> Reply:
    """Draw a whole reply; its opaque parts belong to `dialect`."""
    calls = draw(st.lists(st.builds(WholeCall, id=ids, name=names, arguments=arguments), max_size=3))
    native, reason = draw(
        st.sampled_from((("max_tokens", "length"), ("guardrail_intervened", "content_filter")))
        | st.just(("tool_use", "tool_calls") if calls else ("stop_sequence", "stop"))
    )
    blocks = draw(st.lists(_thoughts, max_size=2))
    for number, block in enumerate(blocks):
        block.block = number
    own = draw(st.lists(_own_blocks, max_size=2))
    choice = Choice(
        text=draw(maybe(words)),
        reasoning=blocks,
        images=draw(st.lists(st.just("data:image/png;base64,aGk="), max_size=1)),
        tool_calls=calls,
        extra={dialect: {"content": own}} if own else {},
        finish=reason,
        native_finish=native,
    )
    usage = draw(maybe(st.builds(Usage, input=counts, cache_read=counts, output=counts)))
    extra = draw(st.just({}) | _around.map(lambda data: {dialect: data}))
    return Reply(model=draw(words), choices=[choice], usage=usage, extra=extra)


_thoughts = st.builds(ReasoningDelta, text=words | st.just(""), signature=words, format=st.just(SEAL)) | st.builds(
    ReasoningDelta, data=words, format=st.just(SEAL)
)
_around = st.fixed_dictionaries({"additionalModelResponseFields": unknown, "trace": unknown})
_servers_call = st.builds(
    lambda name, given: {"toolUse": {"toolUseId": "s", "name": name, "type": "server_tool_use", "input": given}},
    names,
    records,
)
_servers_result = records.map(
    lambda given: {
        "toolResult": {"toolUseId": "s", "type": "x_result", "status": "success", "content": [{"json": given}]}
    }
)
_own_blocks = _servers_call | _servers_result


@st.composite
def chats(draw: st.DrawFn, dialect: str) -> Chat:
    """Draw a request that was read from `dialect` and then changed, so that its bytes no longer stand for it."""
    messages = draw(_conversations(dialect))
    calls = any(isinstance(part, ToolCall) for one in messages for part in one.parts)
    # Bedrock wants tools beside calls.
    tools = draw(st.lists(_functions, min_size=1 if calls else 0, max_size=3)) or None
    thinking = draw(maybe(_thinking))
    return Chat(
        model=draw(words),
        messages=messages,
        stream=draw(st.booleans()),
        max_tokens=draw(st.integers(4096, 10**6)),
        reasoning=thinking,
        # Neither is taken beside thinking, nor one beside the other.
        **({} if thinking else draw(_sampling)),
        stop=draw(maybe(st.lists(said, min_size=1, max_size=4))),
        tools=tools,
        response_format=draw(maybe(_forms)),
        **(draw(_choices(calls=calls, forced=thinking is None)) if tools else {}),
        metadata=draw(maybe(st.dictionaries(names, names, min_size=1, max_size=2))),
        service_tier=draw(maybe(st.sampled_from(("flex", "priority", "reserved")))),
        extra=draw(maybe(_own_fields)),
        dialect=dialect,
    )


_thinking = st.sampled_from(
    (ReasoningRequest(effort="none"), ReasoningRequest(max_tokens=2048), ReasoningRequest(effort="high"))
)
_sampling = st.fixed_dictionaries({}, optional={"top_p": st.floats(0, 1), "top_k": st.integers(0, 500)}) | st.floats(
    0, 1
).map(lambda value: {"temperature": value})
_own_fields = unknown | unknown.map(lambda fields: {"additionalModelRequestFields": fields})
_forms = st.builds(
    ResponseFormat,
    kind=st.just("json_schema"),
    name=names,
    description=maybe(words),
    schema=st.just(
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
    ),
)


def _choices(*, calls: bool, forced: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Draw a choice among tools: none only where some were called before, a forced one only without thinking."""
    found: list[dict[str, Any]] = [
        {},
        {"tool_choice": ToolChoice(mode="auto")},
        {"tool_choice": ToolChoice(mode="auto"), "parallel_tool_calls": False},
    ]
    if calls:
        found.append({"tool_choice": ToolChoice(mode="none")})
    if forced:
        found += [{"tool_choice": ToolChoice(mode="required")}, {"tool_choice": ToolChoice(mode="named", name="a")}]
    return st.sampled_from(found)


_functions = st.builds(
    FunctionTool,
    name=names,
    description=maybe(words),
    parameters=unknown.map(lambda fields: {"type": "object", **fields}),
    cache=marks,
)


@st.composite
def _conversations(draw: st.DrawFn, dialect: str) -> list[Message]:
    """Draw instructions, then turns of user and assistant; a user's begins with the results of the calls before."""
    messages: list[Message] = []
    calls: list[ToolCall] = []
    documents = 0
    if draw(st.booleans()):
        messages.append(Message(role="system", parts=draw(st.lists(_texts, min_size=1, max_size=2))))
    for _ in range(draw(st.integers(1, 3))):
        messages += [Message(role="tool", parts=[replace(draw(_results(dialect)), call_id=one.id)]) for one in calls]
        parts: list[Part] = draw(st.lists(_shown(dialect), min_size=0 if calls else 1, max_size=2))
        if parts:
            documents += 1
            parts = [replace(draw(_documents), filename=f"file {documents}.pdf"), draw(_texts), *parts]
            messages.append(Message(role="user", parts=parts))
        calls = draw(st.lists(_calls, max_size=2, unique_by=lambda call: call.id))
        thoughts = draw(st.lists(_sealed, min_size=1 if calls else 0, max_size=2))
        answer = draw(st.lists(_texts, min_size=0 if calls else 1, max_size=2))
        messages.append(Message(role="assistant", parts=[*thoughts, *answer, *calls]))
    messages += [Message(role="tool", parts=[replace(draw(_results(dialect)), call_id=one.id)]) for one in calls]
    return [*messages, Message(role="user", parts=[draw(_texts)])]


_texts = st.builds(Text, text=said, cache=marks)
_PICTURE = st.just("data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n").decode())
_pictures = st.builds(Image, url=_PICTURE, cache=marks)
_documents = st.builds(
    File,
    data=st.just(b64encode(b"%PDF-1.4").decode()),
    media_type=st.just("application/pdf"),
    cache=marks,
    extra=maybe(st.fixed_dictionaries({"context": words, "citations": st.just({"enabled": True})})),
)
_recordings = st.builds(Audio, data=st.just("aGk="), format=st.sampled_from(("mp3", "wav", "flac")), cache=marks)
_videos = st.builds(File, data=st.just("aGk="), media_type=st.just("video/mp4"))


def _found(dialect: str) -> st.SearchStrategy[Part]:
    result = {"source": "s", "title": "t", "content": [{"text": "x"}]}
    return st.just(Opaque(dialect=dialect, data={"searchResult": result}))


def _shown(dialect: str) -> st.SearchStrategy[Part]:
    return _texts | _pictures | _recordings | _videos | _found(dialect)


def _results(dialect: str) -> st.SearchStrategy[ToolResult]:
    plain = st.builds(Text, text=said) | st.builds(Image, url=_PICTURE)
    parts = st.lists(plain | _found(dialect), min_size=1, max_size=2)
    return st.builds(ToolResult, call_id=ids, parts=parts, is_error=st.booleans(), cache=marks)


_calls = st.builds(ToolCall, id=ids, name=names, arguments=arguments, cache=marks)
_sealed = st.builds(Reasoning, text=words | st.just(""), signature=words, format=st.just(SEAL)) | st.builds(
    Reasoning, data=words, format=st.just(SEAL)
)
