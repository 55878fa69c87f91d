"""Chats and replies that Anthropic's format can say, in normal form: one answer, thinking before words before calls."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec.structs import replace

from apps.gateway.canonical.chat import (
    Chat,
    File,
    FunctionTool,
    Image,
    Message,
    Opaque,
    OpaqueTool,
    Part,
    Reasoning,
    ReasoningRequest,
    ResponseFormat,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    WebSearchTool,
)
from apps.gateway.canonical.events import Choice, ReasoningDelta, Reply, WholeCall
from apps.kernel.usage import Usage
from tests.support.canonical_chats import counts, marks, maybe, records, unknown, words

SEAL = "anthropic-claude-v1"
said = words.filter(lambda text: bool(text.strip()) and not text.startswith("x-anthropic"))
ids = st.from_regex(r"[a-zA-Z0-9_-]{1,9}", fullmatch=True)
# Arguments as the format has them: an object, compact.
arguments = records.map(lambda record: msgspec.json.encode(record).decode())


@st.composite
def replies(draw: st.DrawFn, dialect: str) -> Reply:
    """Draw a whole reply; its opaque parts belong to `dialect`."""
    calls = draw(st.lists(st.builds(WholeCall, id=ids, name=words, arguments=arguments), max_size=3))
    native, reason = draw(
        st.sampled_from((("max_tokens", "length"), ("refusal", "content_filter")))
        | st.just(("tool_use", "tool_calls") if calls else ("stop_sequence", "stop"))
    )
    blocks = draw(st.lists(_thoughts, max_size=2))
    for number, block in enumerate(blocks):
        block.block = number
    choice = Choice(
        text=draw(maybe(words)),
        reasoning=blocks,
        tool_calls=calls,
        finish=reason,
        native_finish=native,
        choice_extra={dialect: {"stop_sequence": draw(words)}} if native == "stop_sequence" else {},
    )
    usage = draw(maybe(st.builds(Usage, input=counts, cache_read=counts, output=counts, reasoning=counts)))
    extra = draw(st.just({}) | unknown.map(lambda data: {dialect: data}))
    return Reply(id=draw(words), model=draw(words), choices=[choice], usage=usage, extra=extra)


_thoughts = st.builds(
    ReasoningDelta, text=words | st.just(""), signature=words, format=st.just(SEAL), id=maybe(words)
) | st.builds(ReasoningDelta, data=words, format=st.just("other-v1"), id=maybe(words))


@st.composite
def chats(draw: st.DrawFn, dialect: str) -> Chat:
    """Draw a request that was read from `dialect` and then changed, so that its bytes no longer stand for it."""
    choice = draw(maybe(_choices))
    tools = draw(maybe(st.lists(_tools(dialect), min_size=1, max_size=3)))
    meaning, extra = draw(_thinking)
    user = draw(maybe(words))
    form = draw(maybe(records))
    unknown_fields = draw(st.just({}) | unknown)
    if user is not None:
        extra = {**extra, "metadata": {"user_id": user}}
    if form is not None:
        extra = {**extra, "output_config": {"format": {"type": "json_schema", "schema": form}}}
    extra = {**extra, **unknown_fields}
    return Chat(
        model=draw(words),
        messages=draw(_conversations(dialect)),
        stream=draw(st.booleans()),
        max_tokens=draw(st.integers(1, 10**6)),
        temperature=draw(maybe(st.floats(0, 1))),
        top_p=draw(maybe(st.floats(0, 1))),
        top_k=draw(maybe(st.integers(0, 100))),
        stop=draw(maybe(st.lists(words, max_size=4))),
        tools=tools,
        tool_choice=choice if tools else None,
        parallel_tool_calls=False if tools and choice and choice.mode != "none" and draw(st.booleans()) else None,
        reasoning=meaning,
        response_format=None if form is None else ResponseFormat(kind="json_schema", name="answer", schema=form),
        user=user,
        service_tier=draw(maybe(words)),
        extra=extra or None,
        dialect=dialect,
    )


_thinking: st.SearchStrategy[tuple[ReasoningRequest | None, dict[str, Any]]] = st.sampled_from(
    (
        (None, {}),
        (None, {"thinking": {"type": "adaptive"}}),
        (ReasoningRequest(effort="none"), {"thinking": {"type": "disabled"}}),
        (ReasoningRequest(max_tokens=2048), {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        (ReasoningRequest(exclude=True), {"thinking": {"type": "adaptive", "display": "omitted"}}),
    )
)
_choices = st.builds(ToolChoice, mode=st.sampled_from(("auto", "none", "required"))) | st.builds(
    ToolChoice, mode=st.just("named"), name=words
)


def _tools(dialect: str) -> st.SearchStrategy[Any]:
    return (
        st.builds(
            FunctionTool,
            name=words,
            description=maybe(words),
            parameters=unknown,
            strict=maybe(st.booleans()),
            cache=marks,
            extra=maybe(unknown),
        )
        | st.builds(
            WebSearchTool,
            user_location=maybe(records),
            max_uses=maybe(st.integers(1, 9)),
            cache=marks,
            extra=st.just({"type": "web_search_20260209", "name": "web_search"}),
        )
        | st.builds(OpaqueTool, dialect=st.just(dialect), data=records.map(lambda data: {**data, "type": "x_20250124"}))
    )


@st.composite
def _conversations(draw: st.DrawFn, dialect: str) -> list[Message]:
    """Draw instructions, then turns of user and assistant; a user's begins with the results of the calls before."""
    messages: list[Message] = []
    calls: list[ToolCall] = []
    if draw(st.booleans()):
        texts = st.lists(_texts, min_size=1, max_size=2)
        messages.append(Message(role="system", parts=draw(texts)))
    for _ in range(draw(st.integers(1, 3))):
        results = [replace(draw(_results), call_id=call.id) for call in calls]
        messages += [Message(role="tool", parts=[result]) for result in results]
        parts: list[Part] = draw(st.lists(_shown(dialect), min_size=0 if results else 1, max_size=2))
        if parts:
            messages.append(Message(role="user", parts=parts, extra=draw(maybe(unknown))))
        calls = draw(st.lists(_calls, max_size=2, unique_by=lambda call: call.id))
        # A turn of calls that has lost its thinking cannot be thought about any more.
        thoughts = draw(st.lists(_sealed, min_size=1 if calls else 0, max_size=2))
        words_of = draw(st.lists(_texts, min_size=0 if calls else 1, max_size=2))
        messages.append(Message(role="assistant", parts=[*thoughts, *words_of, *calls]))
        if not calls and draw(st.booleans()):
            messages.append(Message(role="system", parts=[Text(text=draw(said))]))
    return [*messages, *(Message(role="tool", parts=[replace(draw(_results), call_id=call.id)]) for call in calls)]


_texts = st.builds(Text, text=said, cache=marks, extra=maybe(unknown))
_pictures = st.builds(
    Image, url=st.sampled_from(("https://i.example/1.png", "data:image/png;base64,aGk=")), cache=marks
)
_documents = (
    st.builds(File, data=ids, media_type=st.just("application/pdf"), filename=maybe(words), cache=marks)
    | st.builds(File, data=st.just("aGk="), media_type=st.just("text/plain"), extra=maybe(unknown))
    | st.builds(File, url=words)
    | st.builds(File, file_id=words)
)


_results = st.builds(
    ToolResult,
    call_id=ids,
    parts=st.lists(_texts | _pictures, max_size=2),
    is_error=st.booleans(),
    cache=marks,
    extra=maybe(unknown),
)
_calls = st.builds(ToolCall, id=ids, name=words, arguments=arguments, cache=marks, extra=maybe(unknown))
_sealed = st.builds(Reasoning, text=words | st.just(""), signature=words, format=st.just(SEAL)) | st.builds(
    Reasoning, data=words, format=st.just(SEAL)
)


def _shown(dialect: str) -> st.SearchStrategy[Part]:
    opaque = st.builds(Opaque, dialect=st.just(dialect), data=records.map(lambda data: {**data, "type": "compaction"}))
    return _texts | _pictures | _documents | opaque
