"""Chats and replies that Cohere's format can say, in normal form: one answer, thinking before words, a plan before
calls."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec.structs import replace

from apps.gateway.canonical.chat import (
    Chat,
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
from tests.support.canonical_chats import counts, maybe, records, texts, unknown, words

PLAN = "cohere-tool-plan"
arguments = records.map(lambda record: msgspec.json.encode(record).decode())


@st.composite
def replies(draw: st.DrawFn, dialect: str) -> Reply:
    """Draw a whole reply; its opaque parts belong to `dialect`."""
    calls = draw(st.lists(st.builds(WholeCall, id=words, name=words, arguments=arguments), max_size=3))
    native, reason = draw(
        st.sampled_from((("MAX_TOKENS", "length"), ("ERROR_TOXIC", "content_filter")))
        | (st.just(("TOOL_CALL", "tool_calls")) if calls else st.sampled_from((("COMPLETE", "stop"), _STOPPED)))
    )
    blocks = draw(st.lists(st.builds(ReasoningDelta, text=words), max_size=2))
    if calls:
        blocks += draw(st.lists(st.builds(ReasoningDelta, text=words, format=st.just(PLAN)), max_size=1))
    for number, block in enumerate(blocks):
        block.block = number
    text = draw(maybe(words) if calls else texts)
    extra: dict[str, Any] = draw(st.just({}) | st.fixed_dictionaries({"citations": _citations}))
    choice = Choice(
        text=text,
        reasoning=blocks,
        tool_calls=calls,
        finish=reason,
        native_finish=native,
        logprobs=draw(maybe(_logprobs)) if text else None,
        extra={dialect: extra} if extra else {},
    )
    usage = draw(maybe(st.builds(Usage, input=counts, cache_read=counts, output=counts)))
    return Reply(id=draw(words), model=draw(words), choices=[choice], usage=usage)


_STOPPED = ("STOP_SEQUENCE", "stop")
# Citations without an address are nothing that other formats have.
_citations = st.lists(st.fixed_dictionaries({"start": counts, "end": counts, "text": texts}), min_size=1, max_size=2)
_logprobs = st.fixed_dictionaries(
    {
        "content": st.lists(
            st.tuples(words, st.floats(-9, 0)).map(
                lambda said: {
                    "token": said[0],
                    "logprob": said[1],
                    "bytes": list(said[0].encode("utf-8", "replace")),
                    "top_logprobs": [],
                }
            ),
            min_size=1,
            max_size=2,
        )
    }
)


@st.composite
def chats(draw: st.DrawFn, dialect: str) -> Chat:
    """Draw a request that was read from `dialect` and then changed, so that its bytes no longer stand for it."""
    tools = draw(maybe(_tools()))
    # A form beside tools is another tool, and without a word of JSON the gateway adds one.
    form = None if tools else draw(maybe(_formats))
    messages = draw(_conversations(dialect))
    if form is not None:
        messages.insert(0, Message(role="system", parts=[Text(text="JSON, please.")]))
    return Chat(
        model=draw(words),
        messages=messages,
        stream=draw(st.booleans()),
        max_tokens=draw(maybe(st.integers(1, 10**6))),
        temperature=draw(maybe(st.floats(0, 2))),
        top_p=draw(maybe(st.floats(0.01, 0.99))),
        top_k=draw(maybe(st.integers(0, 500))),
        frequency_penalty=draw(maybe(st.floats(0, 1))),
        presence_penalty=draw(maybe(st.floats(0, 1))),
        stop=draw(maybe(st.lists(words, min_size=1, max_size=4))),
        seed=draw(maybe(st.integers(0, 2**63 - 1))),
        logprobs=draw(maybe(st.booleans())),
        response_format=form,
        tools=tools,
        tool_choice=draw(maybe(_choices)) if tools else None,
        reasoning=draw(maybe(_thinking)),
        extra=draw(maybe(unknown)),
        dialect=dialect,
    )


_formats = st.just(ResponseFormat(kind="json_object")) | st.builds(
    ResponseFormat, kind=st.just("json_schema"), name=st.just("answer"), schema=records
)
_choices = st.builds(ToolChoice, mode=st.sampled_from(("none", "required")))
_thinking = st.sampled_from((ReasoningRequest(effort="none"), ReasoningRequest(max_tokens=31)))


@st.composite
def _tools(draw: st.DrawFn) -> list[FunctionTool]:
    """Draw tools; arguments are bound to the schemas of all of them or of none."""
    tools: list[FunctionTool] = draw(st.lists(_functions, min_size=1, max_size=3))
    if not draw(st.booleans()):
        return tools
    bound = {"type": "object", "required": ["a"]}
    return [replace(tool, strict=True, parameters=bound) for tool in tools]


_functions = st.builds(FunctionTool, name=words, description=maybe(words), parameters=unknown)


@st.composite
def _conversations(draw: st.DrawFn, dialect: str) -> list[Message]:
    """Draw turns of user and assistant, each call with its result behind it; documents are with the last question."""
    messages: list[Message] = []
    if draw(st.booleans()):
        messages.append(Message(role="system", parts=[draw(_texts)]))
    for _ in range(draw(st.integers(1, 3))):
        shown = draw(st.lists(_texts | _pictures, min_size=1, max_size=2))
        messages.append(Message(role="user", parts=shown, extra=draw(maybe(unknown))))
        calls = draw(st.lists(_calls, max_size=2, unique_by=lambda call: call.id))
        thoughts = draw(st.lists(st.builds(Reasoning, text=words), max_size=1))
        said = draw(st.lists(_texts, min_size=0 if calls or thoughts else 1, max_size=2))
        plans = draw(st.lists(st.builds(Reasoning, text=words, format=st.just(PLAN)), max_size=1)) if calls else []
        messages.append(Message(role="assistant", parts=[*thoughts, *said, *plans, *calls], extra=draw(maybe(unknown))))
        for call in calls:
            result = ToolResult(call_id=call.id, parts=draw(st.lists(_texts | _data(dialect), min_size=1, max_size=2)))
            messages.append(Message(role="tool", parts=[result], extra=draw(maybe(unknown))))
    asking = next(message for message in reversed(messages) if message.role == "user")
    asking.parts = [*asking.parts, *draw(st.lists(_documents(dialect), max_size=2))]
    return messages


_texts = st.builds(Text, text=words)
_pictures = st.builds(Image, url=words, detail=maybe(words))
_calls = st.builds(ToolCall, id=words, name=words, arguments=arguments)


def _data(dialect: str) -> st.SearchStrategy[Part]:
    stated = st.fixed_dictionaries({"data": records}, optional={"id": words})
    return stated.map(lambda one: Opaque(dialect=dialect, data={"type": "document", "document": one}))


def _documents(dialect: str) -> st.SearchStrategy[Part]:
    return _data(dialect) | words.map(lambda text: Opaque(dialect=dialect, data={"type": "document", "document": text}))
