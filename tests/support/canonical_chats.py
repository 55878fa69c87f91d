"""Chats and replies of every kind, for laws that hold for all of them. In normal form: what two formats would both say
in only one way."""

from __future__ import annotations

from typing import Any

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
    OpaqueTool,
    Part,
    Reasoning,
    ReasoningRequest,
    Refusal,
    ResponseFormat,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    WebSearchTool,
)
from apps.gateway.canonical.events import AudioDelta, Choice, ReasoningDelta, Reply, WholeCall
from apps.kernel.usage import Usage

texts = st.text(max_size=12)
words = st.text(min_size=1, max_size=8)
# Arguments of calls in answers; `null` is read as the empty object that clients want.
called_with = texts.filter(lambda text: text != "null")
counts = st.integers(0, 10**6)
numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    texts | numbers | st.booleans(),
    lambda inner: st.lists(inner | st.none(), max_size=3) | st.dictionaries(words, inner | st.none(), max_size=3),
    max_leaves=4,
)
records = st.dictionaries(words, values, max_size=2)
# Fields that no format knows.
unknown = st.dictionaries(words.map("x_{}".format), values, min_size=1, max_size=2)
marks = st.none() | st.builds(CacheMark, ttl=st.sampled_from((None, "5m", "1h")))


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw nothing as often as something."""
    return st.none() | strategy


@st.composite
def replies(draw: st.DrawFn, dialect: str) -> Reply:
    """Draw a whole reply; its opaque parts belong to `dialect`."""
    return Reply(
        id=draw(words),
        model=draw(words),
        created=draw(st.integers(1, 2**31)),
        choices=[draw(_choices(dialect, index)) for index in range(draw(st.integers(1, 3)))],
        usage=draw(maybe(st.builds(Usage, input=counts, cache_read=counts, output=counts, reasoning=counts))),
        extra=draw(_opaque(dialect)),
    )


@st.composite
def _choices(draw: st.DrawFn, dialect: str, index: int) -> Choice:
    calls = draw(st.lists(_whole_calls, max_size=2, unique_by=lambda call: call.id))
    refusal = draw(maybe(words))
    audio = draw(maybe(_sounds))
    reason = draw(st.sampled_from(("length", "content_filter", "tool_calls" if calls else "stop")))
    blocks = draw(st.just([]) | st.builds(ReasoningDelta, text=words).map(lambda one: [one]) | _sealed_blocks)
    for number, block in enumerate(blocks):
        block.choice, block.block = index, number
    if audio is not None:
        audio.choice = index
    annotations = draw(st.lists(_citations, max_size=2))
    # Formats tell that there was a search by citing pages, if at all.
    searches = draw(st.lists(texts, max_size=2)) if dialect == "any" else [""] * bool(annotations)
    return Choice(
        text=draw(texts if not calls and refusal is None and audio is None else maybe(texts)),
        reasoning=blocks,
        refusal=refusal,
        tool_calls=calls,
        images=draw(st.lists(words.map("data:image/png;base64,{}".format), max_size=2)),
        audio=audio,
        annotations=annotations,
        searches=searches,
        logprobs=draw(maybe(st.fixed_dictionaries({"content": st.lists(unknown, max_size=2)}))),
        extra=draw(_opaque(dialect)),
        choice_extra=draw(_opaque(dialect)),
        finish=reason,
        native_finish=reason,
    )


def _opaque(dialect: str) -> st.SearchStrategy[dict[str, dict[str, Any]]]:
    return st.just({}) | unknown.map(lambda data: {dialect: data})


_whole_calls = st.builds(
    WholeCall,
    id=words,
    name=words,
    arguments=called_with,
    extra=maybe(st.fixed_dictionaries({"extra_content": records})),
)
_sounds = st.builds(AudioDelta, id=words, data=texts, transcript=texts, expires_at=maybe(st.integers(1, 2**31)))
_citations = st.fixed_dictionaries(
    {
        "type": st.just("url_citation"),
        "url_citation": st.fixed_dictionaries(
            {"url": words, "title": texts, "start_index": counts, "end_index": counts}
        ),
    }
)
_seals = {"format": words, "id": maybe(words)}
_sealed_blocks = st.lists(
    st.builds(ReasoningDelta, text=words, signature=maybe(words), **_seals)
    | st.builds(ReasoningDelta, text=st.just(""), signature=words, **_seals)
    | st.builds(ReasoningDelta, text=words, summary=st.just(True), **_seals)
    | st.builds(ReasoningDelta, data=words, **_seals),
    max_size=3,
)


@st.composite
def chats(draw: st.DrawFn, dialect: str) -> Chat:
    """Draw a request that was read from `dialect` and then changed, so that its bytes no longer stand for it."""
    logprobs = draw(maybe(st.booleans()))
    # An empty list is none, and a choice among none is never written.
    tools = draw(maybe(_tool_lists(dialect))) or None
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
        stop=draw(maybe(st.lists(words, max_size=4))),
        seed=draw(maybe(st.integers(-(2**63), 2**63 - 1))),
        n=draw(maybe(st.integers(1, 128))),
        logprobs=logprobs,
        top_logprobs=draw(maybe(st.integers(0, 20))) if logprobs else None,
        logit_bias=draw(maybe(st.dictionaries(words, st.floats(-100, 100), max_size=2))),
        response_format=draw(maybe(_formats)),
        tools=tools,
        tool_choice=draw(maybe(_choices_of_tools)) if tools else None,
        parallel_tool_calls=draw(maybe(st.booleans())) if tools else None,
        reasoning=draw(maybe(_efforts)),
        effort=draw(maybe(st.sampled_from(("low", "medium", "high")))),
        plugins=draw(maybe(st.just(["response-healing"]))),
        image_config=draw(maybe(unknown)),
        user=draw(maybe(texts)),
        metadata=draw(maybe(records)),
        service_tier=draw(maybe(words)),
        prompt_cache_key=draw(maybe(words)),
        verbosity=draw(maybe(words)),
        modalities=draw(maybe(st.lists(words, max_size=2))),
        audio=draw(maybe(records)),
        prediction=draw(maybe(records)),
        store=draw(maybe(st.booleans())),
        extra=draw(maybe(unknown)),
        dialect=dialect,
    )


@st.composite
def _conversations(draw: st.DrawFn, dialect: str) -> list[Message]:
    """Draw messages, each call with its result behind it."""
    messages: list[Message] = []
    for message in draw(st.lists(_messages(dialect), min_size=1, max_size=4)):
        messages.append(message)
        messages += [
            Message(role="tool", parts=[replace(draw(_results), call_id=part.id)], extra=draw(maybe(unknown)))
            for part in message.parts
            if isinstance(part, ToolCall)
        ]
    return messages


def _messages(dialect: str) -> st.SearchStrategy[Message]:
    shown = st.builds(Opaque, dialect=st.just(dialect), data=records.map(lambda data: {**data, "type": "video_url"}))
    common = {"extra": maybe(unknown)}
    return st.builds(
        Message,
        role=st.sampled_from(("system", "developer", "user")),
        parts=st.lists(_text_parts | _pictures | _recordings | _documents | shown, min_size=1, max_size=3),
        name=maybe(words),
        **common,
    ) | st.builds(Message, role=st.just("assistant"), parts=_answers(), name=maybe(words), **common)


@st.composite
def _answers(draw: st.DrawFn) -> list[Part]:
    """Draw an earlier answer: thoughts, then words, pictures and calls."""
    calls = draw(st.lists(_calls, max_size=2, unique_by=lambda call: call.id))
    thoughts = draw(st.just([]) | st.builds(Reasoning, text=texts).map(lambda one: [one]) | _sealed_thoughts)
    said = draw(st.lists(_text_parts | st.builds(Refusal, text=texts), min_size=0 if calls else 1, max_size=2))
    return [*thoughts, *said, *draw(st.lists(_pictures, max_size=1)), *calls]


_text_parts = st.builds(Text, text=texts, cache=marks, extra=maybe(unknown))
_pictures = st.builds(Image, url=words, detail=maybe(words), cache=marks)
_recordings = st.builds(Audio, data=words, format=words, cache=marks)
_documents = st.builds(File, data=words, file_id=maybe(words), filename=maybe(texts), cache=marks)
_calls = st.builds(
    ToolCall, id=words, name=texts, arguments=texts, extra=maybe(st.fixed_dictionaries({"extra_content": records}))
)


_results = st.builds(ToolResult, call_id=words, parts=st.lists(_text_parts, min_size=1, max_size=2), name=maybe(words))
_sealed_thoughts = st.lists(
    st.builds(Reasoning, text=words, signature=maybe(words), **_seals)
    | st.builds(Reasoning, text=words, summary=st.just(True), **_seals)
    | st.builds(Reasoning, data=words, **_seals),
    max_size=3,
)
_efforts = st.builds(
    ReasoningRequest,
    effort=maybe(st.sampled_from(("none", "minimal", "low", "medium", "high", "xhigh"))),
    max_tokens=maybe(st.integers(1, 10**5)),
    exclude=maybe(st.booleans()),
)
_formats = st.builds(ResponseFormat, kind=st.sampled_from(("text", "json_object"))) | st.builds(
    ResponseFormat,
    kind=st.just("json_schema"),
    name=maybe(words),
    description=maybe(texts),
    schema=maybe(records),
    strict=maybe(st.booleans()),
)
_choices_of_tools = (
    st.builds(ToolChoice, mode=st.sampled_from(("auto", "none", "required")))
    | st.builds(ToolChoice, mode=st.just("named"), name=words)
    | st.builds(ToolChoice, mode=st.sampled_from(("auto", "required")), allowed=st.lists(words, min_size=1).map(tuple))
)
_functions = st.builds(
    FunctionTool,
    name=words,
    description=maybe(texts),
    parameters=maybe(records),
    strict=maybe(st.booleans()),
    cache=marks,
    extra=maybe(unknown),
)
_searches = st.builds(
    WebSearchTool,
    user_location=maybe(records),
    search_context_size=maybe(st.sampled_from(("low", "medium", "high"))),
    max_uses=maybe(st.integers(1, 9)),
)


@st.composite
def _tool_lists(draw: st.DrawFn, dialect: str) -> list[Tool]:
    """Draw tools; a web search comes last."""
    opaque = st.builds(OpaqueTool, dialect=st.just(dialect), data=records.map(lambda data: {**data, "type": "mcp"}))
    tools: list[Tool] = draw(st.lists(_functions | opaque, min_size=1, max_size=3))
    search = draw(maybe(_searches))
    return tools if search is None else [*tools, search]
