"""Calls that a user's words make the sandbox do, and their arguments."""

from __future__ import annotations

from typing import Any

import pytest

from apps.sandbox.conversation import SandboxTool
from apps.sandbox.scripted_reply import asked_calls, meant_calls, quotes_in

WEATHER = SandboxTool("get_weather", "", {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}})
WRITE = SandboxTool("Write", "", {"properties": {"file_path": {"type": "string"}, "content": {"type": "string"}}})
FETCH = SandboxTool("WebFetch", "", {"type": "object"})
TOOLS = (WEATHER, WRITE, FETCH)


@pytest.mark.parametrize(
    ("said", "calls"),
    [
        (
            'Write({"file_path": "a (1).txt", "content": "x) get_weather(1)"})',
            [("Write", {"file_path": "a (1).txt", "content": "x) get_weather(1)"})],
        ),
        ('What is get_weather("Rome", 3)?', [("get_weather", {"city": "Rome", "days": 3})]),
        ('get_weather( "Rome" ) and get_weather()', [("get_weather", {"city": "Rome"}), ("get_weather", {})]),
        ('get_weather([1], {"a": 2})', [("get_weather", {"city": [1], "days": {"a": 2}})]),
        ("get_weather(Rome)", []),
        ('get_weather("Rome"', []),
        ('get_weather("Rome",', []),
        ('get_weather("Rome" 3)', []),
        ("get_weather(,)", []),
        ("nobody(1) my.get_weather(1)", []),
        ("call get_weather, nobody and WebFetch", [("get_weather", {"city": "city", "days": 1}), ("WebFetch", {})]),
        ("call Write with 'a.txt' and \"it's\"", [("Write", {"file_path": "a.txt", "content": "it's"})]),
        ("what is the weather?", []),
    ],
)
def test_calls_that_are_spelled_out_or_named(said: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    assert [(tool.name, arguments) for tool, arguments in asked_calls(said, TOOLS)] == calls


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ("What is the Weather in Rome?", ["get_weather"]),
        ("fetch the weather", ["get_weather", "WebFetch"]),
        ("please write", []),
        ("weatherman", []),
    ],
)
def test_calls_of_the_tools_that_the_words_are_about(said: str, names: list[str]) -> None:
    assert [tool.name for tool, _ in meant_calls(said, TOOLS)] == names


def test_quotes_are_texts_between_quotation_marks_and_no_apostrophes() -> None:
    assert quotes_in("Dana's file 'a b' isn't “c” but \"d\"") == ["a b", "c", "d"]
