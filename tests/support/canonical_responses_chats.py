"""Chats and replies that the Responses format can say, in normal form: one answer; thinking, then words, then calls."""

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
    ResponseFormat,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    WebSearchTool,
)
from apps.gateway.canonical.events import Choice, ReasoningDelta, Reply, WholeCall
from apps.gateway.dialects.chat.responses.wire import INSTRUCTIONS, SIGNATURE_FORMAT, UNSIGNED_FORMAT
from apps.kernel.usage import Usage
from tests.support.canonical_chats import counts, maybe, records, unknown, words

ids = st.from_regex(r"[a-zA-Z0-9_-]{1,9}", fullmatch=True)
said = words.filter(lambda text: bool(text.strip()))
_item_ids = ids.map("rs_{}".format)


# --- replies


@st.composite
def replies(draw: st.DrawFn, dialect: str) -> Reply:
    """Draw a whole reply; its opaque parts belong to `dialect`."""
    calls = draw(st.lists(_whole_calls, max_size=3))
    native, reason = draw(
        st.sampled_from((("max_output_tokens", "length"), ("content_filter", "content_filter")))
        | st.just(("completed", "tool_calls" if calls else "stop"))
    )
    text = draw(maybe(words))
    foreign = draw(st.lists(_items, max_size=2))
    choice = Choice(
        text=text,
        reasoning=draw(_thoughts()),
        refusal=draw(maybe(words)),
        tool_calls=calls,
        images=draw(st.lists(ids.map("data:image/webp;base64,{}".format), max_size=2)),
        annotations=draw(st.lists(_citations, max_size=2)),
        logprobs=None if text is None else draw(maybe(_logprobs)),
        finish=reason,
        native_finish=native,
        extra={dialect: {"output": foreign}} if foreign else {},
    )
    usage = draw(maybe(st.builds(Usage, input=counts, cache_read=counts, output=counts, reasoning=counts)))
    extra = draw(st.just({}) | words.map(lambda word: {dialect: {"x_more": word}}))
    return Reply(
        id=draw(words),
        model=draw(words),
        created=draw(st.integers(1, 2**31)),
        choices=[choice],
        usage=usage,
        extra=extra,
    )


@st.composite
def _thoughts(draw: st.DrawFn) -> list[ReasoningDelta]:
    """Draw items of thinking: summaries, then thinking in clear, then encrypted thinking."""
    blocks: list[ReasoningDelta] = []
    for item_id in draw(st.lists(_item_ids, max_size=2, unique=True)):
        summaries, texts = draw(st.lists(words, min_size=1, max_size=2)), draw(st.lists(words, max_size=1))
        blocks += [ReasoningDelta(text=text, summary=True, id=item_id, format=SIGNATURE_FORMAT) for text in summaries]
        blocks += [ReasoningDelta(text=text, id=item_id, format=UNSIGNED_FORMAT) for text in texts]
        if data := draw(maybe(ids)):
            blocks.append(ReasoningDelta(data=data, id=item_id, format=SIGNATURE_FORMAT))
    for number, block in enumerate(blocks):
        block.block = number
    return blocks


_whole_calls = st.builds(
    WholeCall,
    id=ids,
    name=words,
    arguments=words.filter(lambda text: text != "null"),
    extra=st.sampled_from((None, {"type": "custom"}, {"namespace": "ns"}, {"type": "custom", "namespace": "ns"})),
)
_items = st.builds(
    lambda kind, more: {"type": kind, "id": "it_1", **more}, st.sampled_from(("web_search_call", "x_item")), unknown
)
_citations = st.fixed_dictionaries(
    {
        "type": st.just("url_citation"),
        "url_citation": st.fixed_dictionaries(
            {"url": words, "title": words, "start_index": counts, "end_index": counts}
        ),
    }
)
_likely = {"token": words, "bytes": st.lists(st.integers(0, 255), max_size=2), "logprob": st.floats(-9, 0)}
_logprobs = st.fixed_dictionaries(
    {
        "content": st.lists(
            st.fixed_dictionaries({**_likely, "top_logprobs": st.lists(st.fixed_dictionaries(_likely), max_size=2)}),
            min_size=1,
            max_size=2,
        )
    }
)


# --- requests


@st.composite
def chats(draw: st.DrawFn, dialect: str) -> Chat:
    """Draw a request that was read from `dialect` and then changed, so that its bytes no longer stand for it."""
    tools = draw(maybe(_tool_lists(dialect)))
    logprobs = draw(maybe(st.just(True)))
    extra = {
        **draw(st.just({}) | unknown),
        **draw(st.sampled_from(({}, {"truncation": "auto"}, {"max_tool_calls": 3}, {"safety_identifier": "x"}))),
        **draw(st.sampled_from(({}, {"include": ["web_search_call.action.sources"]}))),
        **draw(st.sampled_from(({}, {"reasoning": {"x_more": 1}}, {"text": {"x_more": 1}}))),
    }
    return Chat(
        model=draw(words),
        messages=draw(_conversations(dialect)),
        stream=draw(st.booleans()),
        max_tokens=draw(maybe(st.integers(16, 10**6))),
        temperature=draw(maybe(st.floats(0, 2))),
        top_p=draw(maybe(st.floats(0, 1))),
        logprobs=logprobs,
        top_logprobs=draw(maybe(st.integers(0, 20))) if logprobs else None,
        response_format=draw(maybe(_formats)),
        tools=tools,
        tool_choice=draw(maybe(_choices)) if tools else None,
        parallel_tool_calls=draw(maybe(st.just(False))) if tools else None,
        reasoning=draw(maybe(_reasoning)),
        user=draw(maybe(words)),
        metadata=draw(maybe(records)),
        service_tier=draw(maybe(st.sampled_from(("auto", "flex")))),
        prompt_cache_key=draw(maybe(words)),
        verbosity=draw(maybe(words)),
        extra=extra or None,
        dialect=dialect,
    )


_formats = st.builds(ResponseFormat, kind=st.just("json_object")) | st.builds(
    ResponseFormat,
    kind=st.just("json_schema"),
    name=words,
    description=maybe(words),
    schema=unknown,
    strict=maybe(st.booleans()),
)
_reasoning = st.builds(ReasoningRequest, effort=st.sampled_from(("none", "low", "max"))) | st.builds(
    ReasoningRequest, effort=st.sampled_from((None, "high")), summary=st.sampled_from(("auto", "detailed"))
)
_choices = (
    st.builds(ToolChoice, mode=st.sampled_from(("auto", "none", "required")))
    | st.builds(ToolChoice, mode=st.just("named"), name=st.sampled_from(("f", "web_search", "c", "ns", "file_search")))
    | st.builds(
        ToolChoice,
        mode=st.sampled_from(("auto", "required")),
        allowed=st.lists(st.sampled_from(("f", "web_search", "c")), min_size=1).map(tuple),
    )
)
_NATIVE_TOOLS: tuple[dict[str, Any], ...] = (
    {"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "lark", "definition": "start: A"}},
    {"type": "namespace", "name": "ns", "description": "d", "tools": [{"type": "function", "name": "f"}]},
    {"type": "file_search", "vector_store_ids": ["v"]},
)


@st.composite
def _tool_lists(draw: st.DrawFn, dialect: str) -> list[Any]:
    """Draw tools of every kind that can be chosen, each with more or less said of it."""
    function = st.builds(
        FunctionTool,
        name=st.just("f"),
        description=maybe(words),
        parameters=unknown,
        strict=maybe(st.booleans()),
        extra=maybe(unknown),
    )
    search = st.builds(
        WebSearchTool,
        user_location=maybe(unknown),
        search_context_size=maybe(st.sampled_from(("low", "high"))),
        extra=st.sampled_from(("web_search", "web_search_preview")).map(lambda kind: {"type": kind}),
    )
    return [draw(function), draw(search), *(OpaqueTool(dialect=dialect, data=data) for data in _NATIVE_TOOLS)]


@st.composite
def _conversations(draw: st.DrawFn, dialect: str) -> list[Message]:
    """Draw instructions, then turns: of a user and of the model, each call with its result behind it."""
    messages: list[Message] = []
    if draw(st.booleans()):
        messages.append(Message(role="system", parts=[Text(text=draw(words))], extra={INSTRUCTIONS: True}))
    for _ in range(draw(st.integers(1, 3))):
        role = draw(st.sampled_from(("user", "system", "developer")))
        messages.append(Message(role=role, parts=draw(st.lists(_shown, min_size=1, max_size=2))))
        calls = draw(st.lists(_calls, max_size=2, unique_by=lambda call: call.id))
        turn: list[Part] = [
            *draw(_earlier_thoughts()),
            *draw(st.lists(_spoken, min_size=0 if calls else 1, max_size=1)),
        ]
        own = st.builds(
            Opaque, dialect=st.just(dialect), data=unknown.map(lambda data: {"type": "web_search_call", **data})
        )
        messages.append(Message(role="assistant", parts=[*turn, *draw(st.lists(own, max_size=1)), *calls]))
        messages += [Message(role="tool", parts=[replace(draw(_results), call_id=call.id)]) for call in calls]
        if draw(st.booleans()):
            data = {"type": "local_shell_call_output", "id": "x", **draw(unknown)}
            messages.append(Message(role="user", parts=[Opaque(dialect=dialect, data=data)]))
    return messages


_texts = st.builds(Text, text=words, cache=st.sampled_from((None, CacheMark())), extra=maybe(unknown))
_shown = (
    _texts
    | st.builds(Image, url=words, detail=st.sampled_from(("auto", "low")), cache=st.sampled_from((None, CacheMark())))
    | st.builds(File, data=ids.map("data:application/pdf;base64,{}".format), filename=words)
    | st.builds(File, url=words)
    | st.builds(File, file_id=words)
    | st.builds(Audio, data=words, format=st.sampled_from(("wav", "mp3")))
)
_spoken = st.builds(Text, text=said, extra=st.sampled_from((None, {"phase": "commentary"}, {"phase": "final_answer"})))
_calls = st.builds(
    ToolCall,
    id=ids,
    name=ids,
    arguments=said,
    extra=st.sampled_from((None, {"type": "custom"}, {"namespace": "ns"}, {"type": "custom", "namespace": "ns"})),
)
_results = st.builds(ToolResult, call_id=ids, parts=st.lists(_texts, min_size=1, max_size=2))


@st.composite
def _earlier_thoughts(draw: st.DrawFn) -> list[Reasoning]:
    """Draw thinking that its maker takes back."""
    blocks: list[Reasoning] = []
    for item_id in draw(st.lists(_item_ids, max_size=2, unique=True)):
        blocks += [
            Reasoning(text=text, summary=True, id=item_id, format=SIGNATURE_FORMAT)
            for text in draw(st.lists(words, max_size=2))
        ]
        blocks.append(Reasoning(data=draw(ids), id=item_id, format=SIGNATURE_FORMAT))
    return blocks
