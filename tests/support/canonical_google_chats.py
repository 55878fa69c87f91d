"""Chats and replies that Google's format can say, in normal form: thinking, one text, pictures, then calls."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec.structs import replace

from apps.gateway.canonical.chat import (
    Audio,
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
from apps.gateway.dialects.adapting.thinking import join_signature
from apps.kernel.usage import Usage
from tests.support.canonical_chats import counts, maybe, records, unknown, words

SEAL = "google-gemini-v1"
names = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,8}", fullmatch=True)
# Names of fields in the one spelling that comes back as it is.
own = st.dictionaries(st.from_regex(r"x[A-Z][a-z]{1,5}", fullmatch=True), st.text(max_size=4), min_size=1, max_size=2)
seals = st.from_regex(r"[A-Za-z0-9+/]{8}", fullmatch=True)
arguments = records.map(lambda record: msgspec.json.encode(record).decode())
PICTURE = "data:image/png;base64,aGk="


@st.composite
def replies(draw: st.DrawFn, dialect: str) -> Reply:
    """Draw a whole reply; its opaque parts belong to `dialect`."""
    return Reply(
        id=draw(names),
        model=draw(words),
        created=draw(st.integers(1, 2**31)),
        choices=[draw(_choices(dialect, index)) for index in range(draw(st.integers(1, 2)))],
        usage=draw(maybe(st.builds(Usage, input=counts, cache_read=counts, output=counts, reasoning=counts))),
    )


@st.composite
def _choices(draw: st.DrawFn, dialect: str, index: int) -> Choice:
    calls = [_call(*drawn) for drawn in draw(st.lists(st.tuples(names, words, arguments, maybe(seals)), max_size=3))]
    native, reason = draw(
        st.sampled_from((("MAX_TOKENS", "length"), ("SAFETY", "content_filter"), ("RECITATION", "content_filter")))
        | st.just(("STOP", "tool_calls" if calls else "stop"))
    )
    text = draw(maybe(words))
    pictures = draw(st.integers(0, 2))
    blocks = draw(st.lists(st.builds(ReasoningDelta, text=words, signature=seals, format=st.just(SEAL)), max_size=2))
    blocks += draw(maybe(st.builds(ReasoningDelta, text=words).map(lambda one: [one]))) or []
    if text is not None and draw(st.booleans()):
        blocks.append(ReasoningDelta(signature=draw(seals), id="text", format=SEAL))
    blocks += [
        ReasoningDelta(signature=draw(seals), id=f"image-{number}", format=SEAL)
        for number in range(pictures)
        if draw(st.booleans())
    ]
    for number, block in enumerate(blocks):
        block.choice, block.block = index, number
    return Choice(
        text=text,
        reasoning=blocks,
        images=[PICTURE] * pictures,
        tool_calls=calls,
        finish=reason,
        native_finish=native,
        choice_extra=draw(st.just({}) | own.map(lambda data: {dialect: data})),
    )


def _call(call_id: str, name: str, text: str, seal: str | None) -> WholeCall:
    if seal is None:
        return WholeCall(id=call_id, name=name, arguments=text)
    extra = {"extra_content": {"google": {"thought_signature": seal}}}
    return WholeCall(id=join_signature(call_id, seal), name=name, arguments=text, extra=extra)


@st.composite
def chats(draw: st.DrawFn, dialect: str) -> Chat:
    """Draw a request that was read from `dialect` and then changed, so that its bytes no longer stand for it."""
    tools = draw(maybe(st.lists(_functions, min_size=1, max_size=3)))
    others: list[Any] = draw(st.lists(_tools(dialect), max_size=2, unique_by=lambda tool: next(iter(tool.data))))
    search = None if tools else draw(maybe(st.builds(WebSearchTool, extra=maybe(own))))
    whole = [*(tools or ()), *others, *([] if search is None else [search])]
    extra: dict[str, Any] = draw(st.just({}) | own)
    extra |= draw(
        st.sampled_from(({}, {"safetySettings": [{"category": "C", "threshold": "T"}]}, {"cachedContent": "c"}))
    )
    if left := draw(maybe(own)):
        extra["generationConfig"] = left
    return Chat(
        model=draw(words),
        messages=draw(_conversations(dialect)),
        stream=draw(st.booleans()),
        max_tokens=draw(maybe(st.integers(1, 10**6))),
        temperature=draw(maybe(st.floats(0, 2))),
        top_p=draw(maybe(st.floats(0, 1))),
        top_k=draw(maybe(st.integers(0, 100))),
        frequency_penalty=draw(maybe(st.floats(-2, 2))),
        presence_penalty=draw(maybe(st.floats(-2, 2))),
        stop=draw(maybe(st.lists(words, min_size=1, max_size=5))),
        seed=draw(maybe(st.integers(-(2**31) + 1, 2**31 - 1))),
        n=draw(maybe(st.integers(1, 8))),
        logprobs=draw(maybe(st.booleans())),
        top_logprobs=draw(maybe(st.integers(0, 20))),
        response_format=draw(maybe(_formats)),
        tools=whole or None,
        tool_choice=draw(maybe(_choices_of_tools)) if tools else None,
        reasoning=draw(maybe(_efforts)),
        image_config=draw(maybe(st.just({"aspect_ratio": "16:9", "image_size": "2K"}))),
        modalities=draw(st.just(["text"]) | st.just(["text", "image"])),
        service_tier=draw(maybe(st.sampled_from(("flex", "priority")))),
        extra=extra or None,
        dialect=dialect,
    )


# A request shows thinking exactly when it asks for thinking.
_efforts = (
    st.builds(ReasoningRequest, effort=st.sampled_from(("minimal", "low", "medium", "high")), exclude=st.booleans())
    | st.builds(ReasoningRequest, max_tokens=st.integers(1, 10**5), exclude=st.booleans())
    | st.just(ReasoningRequest(exclude=False))
)
_formats = st.just(ResponseFormat(kind="json_object")) | st.just(
    ResponseFormat(kind="json_schema", name="answer", schema={"type": "object", "properties": {"a_b": {"minimum": 1}}})
)
_choices_of_tools = (
    st.builds(ToolChoice, mode=st.sampled_from(("auto", "none", "required")))
    | st.builds(ToolChoice, mode=st.just("named"), name=names)
    | st.builds(ToolChoice, mode=st.just("auto"), allowed=st.lists(names, min_size=1).map(tuple))
    | st.builds(ToolChoice, mode=st.just("required"), allowed=st.lists(names, min_size=2).map(tuple))
)
_functions = st.builds(
    FunctionTool,
    name=names,
    description=maybe(words),
    parameters=unknown.map(lambda properties: {"type": "object", "properties": properties}),
    extra=maybe(own),
)


def _tools(dialect: str) -> st.SearchStrategy[OpaqueTool]:
    kinds = st.sampled_from(("codeExecution", "urlContext", "googleMaps"))
    return st.builds(lambda kind, data: OpaqueTool(dialect=dialect, data={kind: data}), kinds, st.just({}) | own)


@st.composite
def _conversations(draw: st.DrawFn, dialect: str) -> list[Message]:
    """Draw instructions, then turns of user and model; a user's begins with the results of the calls before."""
    messages: list[Message] = []
    calls: list[ToolCall] = []
    if draw(st.booleans()):
        messages.append(Message(role="system", parts=draw(st.lists(_plain, min_size=1, max_size=2))))
    for _ in range(draw(st.integers(1, 3))):
        messages += [
            Message(role="tool", parts=[replace(draw(_results), call_id=call.id, name=call.name)]) for call in calls
        ]
        parts: list[Part] = draw(st.lists(_shown(dialect), min_size=0 if calls else 1, max_size=2))
        if parts:
            messages.append(Message(role="user", parts=parts))
        # The first call of a turn is always signed.
        calls = draw(st.lists(_calls, max_size=2, unique_by=lambda call: call.id))
        for call in calls[:1]:
            call.extra = call.extra or _signed(draw(seals))
        thoughts = draw(st.lists(_thoughts, max_size=2))
        said: list[Part] = draw(st.lists(_texts, min_size=0 if calls else 1, max_size=2))
        messages.append(Message(role="assistant", parts=[*thoughts, *said, *calls]))
    results = [replace(draw(_results), call_id=call.id, name=call.name) for call in calls]
    return [*messages, *(Message(role="tool", parts=[result]) for result in results)]


_plain = st.builds(Text, text=words)
_texts = st.builds(Text, text=words, extra=maybe(own))
_thoughts = st.builds(Reasoning, text=words, signature=seals, format=st.just(SEAL))
_results = st.builds(ToolResult, call_id=names, parts=st.lists(_plain, min_size=1, max_size=1), is_error=st.booleans())
_calls = st.builds(
    ToolCall,
    id=names,
    name=names,
    arguments=arguments,
    extra=maybe(seals.map(lambda seal: _signed(seal))),
)


def _signed(seal: str) -> dict[str, Any]:
    return {"extra_content": {"google": {"thought_signature": seal}}}


def _shown(dialect: str) -> st.SearchStrategy[Part]:
    opaque = st.builds(Opaque, dialect=st.just(dialect), data=own.map(lambda data: {"executableCode": data}))
    return (
        _texts
        | st.builds(Image, url=st.just(PICTURE), extra=maybe(own))
        | st.builds(Audio, data=st.just("aGk="), format=st.sampled_from(("wav", "mp3", "ogg")))
        | st.builds(File, data=st.just("aGk="), media_type=st.sampled_from(("application/pdf", "video/mp4")))
        | st.builds(File, url=st.just("gs://b/o"), media_type=st.just("video/mp4"), extra=maybe(own))
        | opaque
    )
