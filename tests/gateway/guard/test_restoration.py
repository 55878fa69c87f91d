"""Restoration: values take the place of their placeholders in answers, however these are cut; nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Generator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gateway.canonical.chat import Chat, FunctionTool, ResponseFormat
from apps.gateway.canonical.events import (
    Annotated,
    Event,
    Failed,
    Finished,
    Logprobs,
    OpaqueDelta,
    ReasoningDelta,
    RefusalDelta,
    Searched,
    Started,
    Summary,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
    Waiting,
    fold,
)
from apps.gateway.guard import restoration
from apps.gateway.guard.placeholders import MaskedValue
from apps.gateway.guard.restoration import AnswerRestoration
from apps.kernel.errors import InternalError
from apps.kernel.usage import Usage

VALUES = {
    "[EMAIL_1]": MaskedValue("ann@post.org"),
    "[EMAIL_12]": MaskedValue("ben@post.org"),
    "[ACCOUNT_1]": MaskedValue("4440001", was_number=True),
    "[PHONE_1]": MaskedValue("5550002"),
    "[SECRET_1]": MaskedValue('a"b\\c\n'),
}
END = Finished(reason="stop")
SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "text": {"type": "string"},
        "list": {"type": "array", "items": {"type": "object", "properties": {"deep": {"type": ["number", "null"]}}}},
    },
}


def restored(events: list[Event], values: dict[str, MaskedValue] | None = None, **fields: Any) -> list[Event]:
    chat = Chat(model="m", messages=[], stream=True, **fields)

    def given() -> Generator[Event, None, None]:
        yield from events

    return list(AnswerRestoration(values or VALUES, chat).restore(given()))


def in_pieces(text: str, size: int, kind: type[Any] = TextDelta, **fields: Any) -> list[Event]:
    return [kind(text=text[at : at + size], **fields) for at in range(0, len(text), size)]


def text_of(events: list[Event], kind: type[Any] = TextDelta) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))


def arguments_of(pieces: list[str], **fields: Any) -> str:
    started = ToolCallStarted(index=0, id="c", name="f")
    out = restored([started, *(ToolCallDelta(index=0, arguments=one) for one in pieces), END], **fields)
    assert (out[0], out[-1]) == (started, END)
    return "".join(event.arguments for event in out if isinstance(event, ToolCallDelta))


@pytest.mark.parametrize("kind", [TextDelta, RefusalDelta])
@pytest.mark.parametrize("size", range(1, 12))
def test_text_is_restored_however_it_is_cut(kind: type[Any], size: int) -> None:
    text = "[EMAIL_1]: ask [EMAIL_12], [[EMAIL_1]] or [EMAIL_3]; [PHONE_1][SECRET_1] [EMAIL_"
    expected = (
        text.replace("[EMAIL_12]", "ben@post.org").replace("[EMAIL_1]", "ann@post.org").replace("[PHONE_1]", "5550002")
    ).replace("[SECRET_1]", 'a"b\\c\n')
    assert text_of(restored([*in_pieces(text, size, kind), END]), kind) == expected


@pytest.mark.parametrize("at", range(len("to [EMAIL_12]!") + 1))
def test_text_is_restored_where_it_is_cut_once(at: int) -> None:
    text = "to [EMAIL_12]!"
    out = restored([TextDelta(text=text[:at]), TextDelta(text=text[at:]), END])
    assert text_of(out) == "to ben@post.org!"
    # Nothing waits but what may be a placeholder's beginning.
    first = text[:at] if not 3 < at < 13 else text[:3]
    assert text_of(out[:1]) == first.replace("[EMAIL_12]", "ben@post.org")


@pytest.mark.parametrize("text", ["see [1] and [EMAIL], [EMAIL_2] [A", "[", '"', "a\\", 'x = [{"a": [1, "b"]}]'])
@pytest.mark.parametrize("size", [1, 2, 100])
def test_another_text_stays_as_it_is(text: str, size: int) -> None:
    assert text_of(restored([*in_pieces(text, size), END])) == text


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 1000])
def test_tool_arguments_stay_json_with_their_types(size: int) -> None:
    value = {
        "to": "[EMAIL_1]",
        "n": "[ACCOUNT_1]",
        "[ACCOUNT_1]": ["[ACCOUNT_1]", "no [ACCOUNT_1]", "[PHONE_1]"],
        "key": "[SECRET_1]",
        "nested": json.dumps({"n": "[ACCOUNT_1]", "key": "[SECRET_1]"}),
    }
    expected = {
        "to": "ann@post.org",
        "n": 4440001,
        "4440001": [4440001, "no 4440001", "5550002"],
        "key": 'a"b\\c\n',
        "nested": json.dumps({"n": 4440001, "key": 'a"b\\c\n'}),
    }
    for indent in (None, 2):
        written = json.dumps(value, indent=indent)
        pieces = [written[at : at + size] for at in range(0, len(written), size)]
        assert json.loads(arguments_of(pieces)) == expected


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_the_tools_schema_has_the_last_word_on_types(size: int) -> None:
    value = {"n": "[PHONE_1]", "text": "[ACCOUNT_1]", "list": [{"deep": "[PHONE_1]"}], "other": "[PHONE_1]"}
    written = json.dumps(value)
    pieces = [written[at : at + size] for at in range(0, len(written), size)]
    tools = [FunctionTool(name="f", parameters=SCHEMA)]
    assert json.loads(arguments_of(pieces, tools=tools)) == {
        "n": 5550002,
        "text": "4440001",
        "list": [{"deep": 5550002}],
        "other": "5550002",
    }


def test_arguments_without_quotes_or_end_are_restored_too() -> None:
    assert arguments_of(['{"n": [ACCOUNT_1], "to": "[EMAIL', "_1]"]) == '{"n": 4440001, "to": "ann@post.org'


def test_a_number_that_was_a_string_too_stays_a_string() -> None:
    values = {"[ACCOUNT_1]": MaskedValue("444", was_number=True, was_string=True)}
    out = restored([TextDelta(text='{"n": "[ACCOUNT_1]"}'), END], values)
    assert text_of(out) == '{"n": "444"}'


def test_an_answer_in_json_follows_its_schema() -> None:
    form = ResponseFormat(kind="json_schema", schema=SCHEMA)
    text = '{"n":"[PHONE_1]","text":"[SECRET_1]"}'
    out = restored([*in_pieces(text, 3), END], response_format=form)
    assert json.loads(text_of(out)) == {"n": 5550002, "text": 'a"b\\c\n'}


def test_json_in_an_answers_text_has_its_numbers_again() -> None:
    text = 'Edit:\n```\n{"n": "[ACCOUNT_1]",\n"to": "[EMAIL_1]"}\n```'
    assert text_of(restored([*in_pieces(text, 4), END])) == 'Edit:\n```\n{"n": 4440001,\n"to": "ann@post.org"}\n```'


def test_thinking_stays_as_its_maker_signed_it() -> None:
    events: list[Event] = [ReasoningDelta(text="ask [EMAIL_1]"), ReasoningDelta(signature="sealed"), END]
    assert restored(events) == events
    block = {"type": "thinking", "thinking": "[EMAIL_1]", "signature": "sealed"}
    call = {"type": "tool_use", "input": {"to": "[EMAIL_1]", "n": "[ACCOUNT_1]"}}
    given = OpaqueDelta(dialect="anthropic", data={"content": [block, call]})
    [out, _] = restored([given, END])
    assert isinstance(out, OpaqueDelta)
    assert out.data == {"content": [block, {"type": "tool_use", "input": {"to": "ann@post.org", "n": 4440001}}]}
    assert given.data["content"][1] == call


@pytest.mark.parametrize("kind", [["thinking"], {"thinking": "x"}, ["string", "null"]])
def test_json_with_an_odd_type_has_its_values_again(kind: Any) -> None:
    call = {"type": "tool_use", "input": {"type": kind, "to": "[EMAIL_1]"}}
    [out, _] = restored([OpaqueDelta(dialect="anthropic", data={"content": [call]}), END])
    assert isinstance(out, OpaqueDelta)
    assert out.data == {"content": [{"type": "tool_use", "input": {"type": kind, "to": "ann@post.org"}}]}


def test_what_waits_comes_before_what_follows() -> None:
    usage, wait = UsageReported(usage=Usage(input=1)), Waiting()
    odds, started = Logprobs(logprobs={}), ToolCallStarted(index=0, id="c", name="f")
    events = [Started(), TextDelta(text="a [EM"), wait, odds, usage, started, ToolCallDelta(index=0, arguments='{"a')]
    assert restored([*events, ToolCallDelta(index=0, arguments='": "[EMAIL'), END]) == [
        Started(),
        TextDelta(text="a "),
        wait,
        odds,
        usage,
        TextDelta(text="[EM"),
        started,
        ToolCallDelta(index=0, arguments='{"a'),
        ToolCallDelta(index=0, arguments='": '),
        ToolCallDelta(index=0, arguments='"[EMAIL'),
        END,
    ]


def test_each_choice_and_each_call_is_a_text_of_its_own() -> None:
    events: list[Event] = [
        TextDelta(choice=0, text="[EMAIL"),
        TextDelta(choice=1, text="[PHONE"),
        TextDelta(choice=0, text="_1]"),
        TextDelta(choice=1, text="_1]"),
        *(ToolCallStarted(choice=0, index=n, id=f"c{n}", name="f") for n in range(2)),
        ToolCallDelta(choice=0, index=0, arguments="[EMAIL"),
        ToolCallDelta(choice=0, index=1, arguments="[ACCOUNT"),
        ToolCallDelta(choice=0, index=0, arguments="_12]"),
        ToolCallDelta(choice=0, index=1, arguments="_1]"),
        Finished(choice=0, reason="tool_calls"),
        Finished(choice=1, reason="stop"),
    ]
    reply = fold(restored(events))
    assert [choice.text for choice in reply.choices] == ["ann@post.org", "5550002"]
    assert [call.arguments for call in reply.choices[0].tool_calls] == ["ben@post.org", "4440001"]


def test_citations_are_of_the_same_words() -> None:
    text = "Ask [EMAIL_1] or [EMAIL_12] today"
    cited = {"url": "https://a.org/?q=[PHONE_1]", "title": "t", "start_index": 17, "end_index": 27}
    note = Annotated(annotation={"type": "url_citation", "url_citation": cited})
    out = restored([*in_pieces(text, 5), note, Searched(query="who is [EMAIL_1]"), END])
    moved, searched = [event for event in out if isinstance(event, Annotated | Searched)]
    assert isinstance(moved, Annotated)
    place = moved.annotation["url_citation"]
    assert text_of(out)[place["start_index"] : place["end_index"]] == "ben@post.org"
    assert place["url"] == "https://a.org/?q=5550002"
    assert searched == Searched(query="who is ann@post.org")
    assert cited["start_index"] == 17


@pytest.mark.parametrize("last", [Failed(error=InternalError("broken")), Summary(usage=Usage(), cost={}, metadata={})])
def test_what_waits_is_not_lost_at_the_end(last: Event) -> None:
    assert restored([TextDelta(text="a [EMAIL"), last]) == [TextDelta(text="a "), TextDelta(text="[EMAIL"), last]


PIECES = st.sampled_from(
    [
        "[EMAIL_1]",
        "[ACCOUNT_1]",
        "[PHONE_1]",
        "[EMAIL_",
        "1]",
        "[",
        "]",
        '"',
        "\\",
        '\\"',
        ":",
        ", ",
        "{",
        "\n",
        "n",
        "é",
    ]
)


@given(st.lists(PIECES, max_size=20).map("".join), st.lists(st.integers(0, 200), max_size=12), st.booleans())
def test_no_cut_changes_an_answer(text: str, cuts: list[int], is_json: bool) -> None:
    places = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
    pieces = [text[start:end] for start, end in pairwise(places)]
    if is_json:
        tools = [FunctionTool(name="f", parameters=SCHEMA)]
        assert arguments_of(pieces, tools=tools) == arguments_of([text], tools=tools)
    else:
        out = [text_of(restored([*(TextDelta(text=one) for one in parts), END])) for parts in (pieces, [text])]
        assert out[0] == out[1]


def test_an_answer_has_room_for_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoration, "MAX_RESTORED", 20)
    out = restored([TextDelta(text="[EMAIL_1] [EMAIL_1] [PHONE_1] [PHONE_1]"), END])
    assert text_of(out) == "ann@post.org [EMAIL_1] 5550002 [PHONE_1]"


def test_closing_it_closes_the_answer() -> None:
    closed: list[bool] = []

    def events() -> Generator[Event, None, None]:
        try:
            yield TextDelta(text="a")
            yield TextDelta(text="b")
        finally:
            closed.append(True)

    through = AnswerRestoration(VALUES, Chat(model="m", messages=[], stream=True)).restore(events())
    assert next(through) == TextDelta(text="a")
    through.close()
    assert closed == [True]
