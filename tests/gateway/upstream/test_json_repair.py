"""Repair of JSON as it was meant; valid JSON, and a text that is no answer, stays as it is."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat, Message, ResponseFormat, Target, Text
from apps.gateway.canonical.events import (
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Waiting,
)
from apps.gateway.upstream.json_repair import MAX_LENGTH, JsonRepair, repair_json_text


@pytest.mark.parametrize(
    ("text", "healed"),
    [
        ('{"a": 1.10}', None),
        ("[1]", None),
        ('```json\n{"a": 1.10}\n```', '{"a": 1.10}'),
        ('Sure:\n```json\n{"a": "é', '{"a": "é"}'),
        ('Here: {"a": "}\\""} as you asked', '{"a": "}\\""}'),
        ('{"a": [1, 2', '{"a": [1, 2]}'),
        ('{"a": 1,', '{"a": 1}'),
        ('{"n": 12345678901234567890123456', '{"n": 12345678901234567890123456}'),
        ("{'a': 'b'}", '{"a": "b"}'),
        ('{"a": 1,}', '{"a": 1}'),
        ('{"a": NaN}', '{"a": "NaN"}'),
        ("No.", None),
        ("", None),
        ('{"a": "' + "x" * MAX_LENGTH, None),
    ],
)
def test_what_was_meant(text: str, healed: str | None) -> None:
    assert repair_json_text(text) == healed


def healing(
    *, plugins: list[str] | None = None, kind: Any = "json_object", words: bool = False, **times: Any
) -> JsonRepair:
    chat = Chat(
        model="m",
        messages=[Message(role="user", parts=[Text(text="?")])],
        response_format=ResponseFormat(kind=kind),
        plugins=plugins,
    )
    target = Target(model_name="m", facts={})
    target.rewrites.healing = words
    return JsonRepair(chat, target, **{"tick": 10.0, "now": time.monotonic, **times})


BROKEN: list[Event] = [
    ReasoningDelta(text="Hm"),
    TextDelta(text='```json\n{"a"'),
    TextDelta(text=": 1"),
    Finished(reason="length"),
]
PLUGIN = ["response-healing"]


@pytest.mark.parametrize("wish", [{"plugins": PLUGIN}, {"words": True}])
def test_the_text_comes_in_one_piece_before_the_end(wish: dict[str, Any]) -> None:
    one = healing(**wish)
    assert list(one.repair_events(BROKEN)) == [BROKEN[0], TextDelta(text='{"a": 1}'), BROKEN[3]]
    assert one.repaired is True


@pytest.mark.parametrize("wish", [{}, {"plugins": PLUGIN, "kind": "text"}])
def test_nobody_else_waits(wish: dict[str, Any]) -> None:
    one = healing(**wish)
    assert list(one.repair_events(BROKEN)) == BROKEN
    assert one.repaired is False


def test_what_is_valid_comes_as_it_came() -> None:
    events: list[Event] = [TextDelta(text="{"), TextDelta(text="}"), Finished(reason="stop")]
    one = healing(plugins=PLUGIN)
    assert (list(one.repair_events(events)), one.repaired) == (events, False)


def test_calls_and_what_is_said_beside_them_are_never_touched() -> None:
    events: list[Event] = [
        TextDelta(text='{"broken'),
        ToolCallStarted(index=0, id="c", name="f"),
        ToolCallDelta(index=0, arguments='{"also broken'),
        Finished(reason="tool_calls"),
    ]
    one = healing(plugins=PLUGIN)
    assert (list(one.repair_events(events)), one.repaired) == (events, False)


def test_a_client_that_waits_for_the_text_hears_signs_of_life() -> None:
    clock = count()
    one = healing(plugins=PLUGIN, tick=3, now=lambda: float(next(clock)))
    events = list(one.repair_events([*(TextDelta(text="1") for _ in range(9)), Finished(reason="stop")]))
    waits = [event for event in events if isinstance(event, Waiting)]
    assert len(waits) >= 2
    assert [event for event in events if not isinstance(event, Waiting)][-1] == Finished(reason="stop")
