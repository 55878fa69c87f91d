"""Parses tool calls from a user's message: the tools and their arguments. Pure.

First match wins:

    get_weather({"city": "Rome"})    written out: an object of arguments, or values in the order of the properties;
                                     each such call in the message is made
    call get_weather and get_time    by name; the arguments are examples
    Tell me the weather in Rome      by topic: the message contains every word of the tool's name but the first, which
                                     is the verb (never for a name of one word)

Texts in examples are what the message quotes, one after the other, while there are any.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from apps.sandbox.conversation import SandboxTool
from apps.sandbox.example import example_of

_BY_NAME = re.compile(r"\bcall\s+([\w.-]+(?:(?:\s*,\s*|\s+and\s+)[\w.-]+)*)", re.IGNORECASE)
_BETWEEN_NAMES = re.compile(r"\s*,\s*|\s+and\s+")
_WRITTEN_OUT = re.compile(r"(?<![\w.-])([\w.-]+)\(")
_SEPARATOR = re.compile(r"\s*([,)]?)\s*")
_QUOTED = re.compile(r"\"([^\"\n]+)\"|“([^”\n]+)”|(?<!\w)'([^'\n]+)'(?!\w)")
_WORDS_OF_NAME = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_values = json.JSONDecoder()

Call = tuple[SandboxTool, dict[str, Any]]


def asked_calls(said: str, tools: Sequence[SandboxTool]) -> list[Call]:
    """Return the calls that the words spell out or name, in their order; none where they do neither."""
    offered = {tool.name: tool for tool in tools}
    if written := list(_written_out(said, offered)):
        return written
    asked = _BY_NAME.search(said)
    names = _BETWEEN_NAMES.split(asked[1]) if asked else []
    return [example_call(said, offered[name]) for name in names if name in offered]


def meant_calls(said: str, tools: Sequence[SandboxTool]) -> list[Call]:
    """Return calls of the tools that the words are about."""
    words = set(re.findall(r"\w+", said.lower()))
    subjects = [(tool, _WORDS_OF_NAME.findall(tool.name)[1:]) for tool in tools]
    return [example_call(said, tool) for tool, subject in subjects if subject and words >= set(map(str.lower, subject))]


def example_call(said: str, tool: SandboxTool) -> Call:
    """Return a call with arguments that the tool's schema accepts. Raises Refusal where there are none."""
    return tool, example_of(tool.schema, "object", quotes_in(said))


def quotes_in(said: str) -> list[str]:
    """Return what the words put in quotation marks, in their order."""
    return ["".join(found) for found in _QUOTED.findall(said)]


def _written_out(said: str, offered: dict[str, SandboxTool]) -> Iterator[Call]:
    end = 0
    for found in _WRITTEN_OUT.finditer(said):
        if found.start() < end or (tool := offered.get(found[1])) is None:
            continue  # within the arguments of the call before, or no tool's name
        values, end = _values_from(said, found.end())
        if values is None:
            continue
        if len(values) == 1 and isinstance(values[0], dict):
            yield tool, values[0]
        else:
            properties = tool.schema.get("properties", {}) if isinstance(tool.schema, dict) else {}
            yield tool, dict(zip(properties, values, strict=False))


def _values_from(said: str, place: int) -> tuple[list[Any] | None, int]:
    """Return the JSON values from `place` to the closing bracket, and where that is; None where they are no such."""
    values: list[Any] = []
    while True:
        after = _separator(said, place)
        if after[0] == ")" or (after[0] == "") == bool(values):
            return (values if after[0] == ")" else None), after[1]
        try:
            value, place = _values.raw_decode(said, after[1])
        except ValueError:
            return None, after[1]
        values.append(value)


def _separator(said: str, place: int) -> tuple[str, int]:
    found = _SEPARATOR.match(said, place)
    return (found[1], found.end()) if found else ("", place)
