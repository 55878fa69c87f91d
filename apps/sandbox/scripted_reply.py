"""Answers conversations, always the same way. Pure and format-neutral; knows no wire and no time.

The first match wins: the scenario's own text (`empty`, `kb`, `words`, `verbatim`); calls, when tool_choice
demands them or the last message of the user asks for them; JSON, when a schema or instructions want it;
`<tool> answered: <result>` after tool results; else `You said: <the last user message>` with its attachments counted.

A token is four bytes of UTF-8, the last one perhaps fewer. The prompt's tokens are those of each message's text (with
directives), 85 for each attachment, and those of each tool's name, description and schema (compact, as given); the
completion's are those of all choices' reasoning, text, call names and arguments, and 1,056 for each picture; where only
pictures are asked for, those alone. `max_tokens` bounds reasoning, text and hidden tokens of each choice, never calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from math import ceil
from typing import Any

import msgspec

from apps.sandbox.conversation import (
    Conversation,
    Finish,
    SandboxAnswer,
    SandboxChoice,
    SandboxTool,
    SandboxToolCall,
    SandboxUsage,
    Schema,
)
from apps.sandbox.example import example_of
from apps.sandbox.generated_media import paint, spoken, vector_of
from apps.sandbox.scenario import Scenario, split_directives

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


# A unit is a query over so many documents; one with more tokens counts as several.
UNIT_DOCUMENTS = 100
UNIT_TOKENS = 500
FLAGGED, CLEAN = 0.9375, 0.0078125
_WORD = re.compile(r"\w+")


def relevance_of(document: str, query: str) -> float:
    """Return the share of the query's words that a document has, in sixteenths."""
    wanted = set(_WORD.findall(query.lower()))
    return round(16 * len(wanted & set(_WORD.findall(document.lower()))) / max(len(wanted), 1)) / 16


def rank(query: str, documents: Sequence[str], most: int | None) -> tuple[tuple[int, float], ...]:
    """Return the places of the most relevant documents and how relevant they are, the first of equals first."""
    scored = [(place, relevance_of(document, query)) for place, document in enumerate(documents)]
    return tuple(sorted(scored, key=lambda one: -one[1])[:most])


def search_units_of(tokens: Iterable[int]) -> int:
    """Return the search units of documents with so many tokens each."""
    return -(-sum(max(-(-count // UNIT_TOKENS), 1) for count in tokens) // UNIT_DOCUMENTS)


def judge(text: str, categories: Iterable[str]) -> dict[str, float]:
    """Return a score for each category: a high one for those that the text names."""
    words = text.lower()
    return {name: FLAGGED if name in words else CLEAN for name in categories}


BYTES_PER_TOKEN = 4
ATTACHMENT_TOKENS = 85
PICTURE_TOKENS = 1_056
AUDIO_TOKENS = 10
"""A second of sound that is listened to."""

USUAL_SIZE = "64x64"
THOUGHTS = {"none": 0, "minimal": 4, "low": 8, "medium": 16, "high": 32, "xhigh": 64}
"""Words of reasoning at each effort."""

_KILOBYTE = "sandbox " * 128
_JSON_PLEASE = re.compile(r"\bone JSON object and nothing else\b")


def answer_of(conversation: Conversation, scenario: Scenario) -> SandboxAnswer:
    """Return the answer to a conversation. Raises Refusal where a schema has no example."""
    asked = replace(
        conversation, streamed=False, wants_usage=False, partial_images=0
    )  # a stream says what the plain reply says
    identity = sha256(msgspec.json.encode(asked)).hexdigest()[:24]
    if conversation.vector_length is not None:
        return _vectors(conversation, scenario, identity, conversation.vector_length)
    if conversation.ranks:
        return _ranking(conversation, scenario, identity)
    if conversation.categories:
        return _judgements(conversation, scenario, identity)
    if conversation.speaks or conversation.heard is not None:
        return _audio(conversation, scenario, identity)
    choices = tuple(_choice(conversation, scenario, identity, index) for index in range(conversation.choices))
    usage = _usage(conversation, scenario, choices)
    return SandboxAnswer(identity, conversation.model, choices, usage, conversation.picture)


def _vectors(conversation: Conversation, scenario: Scenario, identity: str, length: int) -> SandboxAnswer:
    """Return the vectors of all turns; of a scenario that is `empty` none."""
    turns = () if scenario.empty else conversation.turns
    return SandboxAnswer(
        identity,
        conversation.model,
        (),
        _usage(conversation, scenario, ()),
        vectors=tuple(vector_of(turn.text, length) for turn in turns),
        tokens_of_inputs=tuple(tokens_of(turn.text) for turn in turns),
        vectors_in_base64=conversation.vectors_in_base64,
    )


def _ranking(conversation: Conversation, scenario: Scenario, identity: str) -> SandboxAnswer:
    """Return the documents in order; those that a scenario names by their `places`; of one that is `empty` none."""
    query, *documents = (turn.text for turn in conversation.turns)
    ranking = rank(split_directives(query)[0], documents, conversation.max_ranked)
    if scenario.places is not None:
        ranking = tuple((int(place), 0.5) for place in scenario.places.split(","))
    # The query is read with each document.
    repeated = replace(conversation, turns=(*conversation.turns, *conversation.turns[:1] * (len(documents) - 1)))
    return SandboxAnswer(
        identity,
        conversation.model,
        (),
        _usage(repeated, scenario, ()),
        ranking=() if scenario.empty else ranking,
        search_units=search_units_of(map(tokens_of, documents)),
        written_as=conversation.written_as,
    )


def _judgements(conversation: Conversation, scenario: Scenario, identity: str) -> SandboxAnswer:
    """Return the moderation of all turns; empty for an `empty` scenario."""
    turns = () if scenario.empty else conversation.turns
    return SandboxAnswer(
        identity,
        conversation.model,
        (),
        _usage(conversation, scenario, ()),
        judgements=tuple(judge(turn.text, conversation.categories) for turn in turns),
        judges_pictures=any(turn.attachments for turn in turns),
    )


def _audio(conversation: Conversation, scenario: Scenario, identity: str) -> SandboxAnswer:
    """Return the last turn read aloud, or written down; of a scenario that is `empty` nothing of it."""
    asked = conversation.question.text if conversation.question else ""
    text = "" if scenario.empty else split_directives(asked)[0]
    sound = spoken(text) if conversation.speaks else ()
    heard = None if conversation.heard is None else round(conversation.heard, 3)
    read = sum(tokens_of(split_directives(turn.text)[0]) for turn in conversation.turns)
    usage = SandboxUsage(read, len(sound))
    if heard is not None:
        attached = ceil(heard * AUDIO_TOKENS)
        usage = SandboxUsage(attached + read - tokens_of(text), tokens_of(text), attached=attached)
    choice = SandboxChoice(text, None, (), scenario.finish or "stop")
    counted = None if scenario.no_usage else usage
    return SandboxAnswer(
        identity, conversation.model, (choice,), counted, sound=sound, heard=heard, form=conversation.form
    )


def tokens_of(text: str | None) -> int:
    """Return the number of tokens of a text."""
    return -(-len((text or "").encode()) // BYTES_PER_TOKEN)


def _choice(conversation: Conversation, scenario: Scenario, identity: str, index: int) -> SandboxChoice:
    said = split_directives(conversation.question.text)[0] if conversation.question else ""
    scripted = _scripted_text(scenario, said)
    wanted = _wanted_calls(conversation, said) if scripted is None else []
    calls = tuple(_written(call, f"{identity}/{index}/{place}") for place, call in enumerate(wanted))
    reasoning = None if scenario.empty else _reasoning(conversation, scenario)
    finish: Finish = "tool_calls" if calls else "stop"
    text = None
    if not calls:
        text = scripted if scripted is not None else _own_text(conversation, scenario, said)
        text += (
            f" (choice {index + 1})" if index and scripted is None and not _wants_json(conversation, scenario) else ""
        )
        text = _stopped(text, conversation.stop)
    hidden = scenario.hidden
    if conversation.max_tokens is not None and not scenario.heedless:
        whole = (reasoning, text, hidden)
        reasoning = reasoning and _first_tokens(reasoning, conversation.max_tokens)
        text = text and _first_tokens(text, conversation.max_tokens - tokens_of(reasoning))
        hidden = min(hidden, conversation.max_tokens - tokens_of(reasoning) - tokens_of(text))
        finish = finish if (reasoning, text, hidden) == whole else "length"
    pictures = _pictures(conversation, scenario, f"{identity}/{index}")
    return SandboxChoice(text, reasoning, calls, scenario.finish or finish, pictures, hidden)


def _pictures(conversation: Conversation, scenario: Scenario, identity: str) -> tuple[bytes, ...]:
    """Return the pictures of an answer: one where pictures are asked for, unless the scenario has another number."""
    usual = 1 if conversation.only_pictures else 0
    count = usual if scenario.pictures is None else scenario.pictures
    size = conversation.picture or USUAL_SIZE
    return () if scenario.empty else tuple(paint(size, f"{identity}/{place}") for place in range(count))


def _scripted_text(scenario: Scenario, said: str) -> str | None:
    if scenario.empty:
        return ""
    if scenario.kb:
        return _KILOBYTE * scenario.kb
    if scenario.words:
        return _numbered("word", scenario.words)
    return said if scenario.verbatim else None


def _own_text(conversation: Conversation, scenario: Scenario, said: str) -> str:
    if _wants_json(conversation, scenario):
        return msgspec.json.encode(_example(conversation.schema, said)).decode()
    if results := conversation.results:
        return "; ".join(f"{turn.name or 'The tool'} answered: {turn.text}" for turn in results)
    attachments = conversation.question.attachments if conversation.question else ()
    counted = ", ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in attachments)
    return f"You said: {said} ({counted})" if counted else f"You said: {said}"


def _example(schema: Schema | None, said: str) -> Any:
    """Return what fits the schema; where any object does, one of the names that the message quotes, if there are."""
    if schema:
        return example_of(schema, texts=quotes_in(said))
    return {name: name for name in quotes_in(said) if name.isidentifier()} or {"answer": f"You said: {said}"}


def _wants_json(conversation: Conversation, scenario: Scenario) -> bool:
    return scenario.json or conversation.schema is not None or _is_told_to_write_json(conversation)


def _is_told_to_write_json(conversation: Conversation) -> bool:
    """Return whether the instructions ask for JSON and nothing else, where a format has no switch for it."""
    instructions = [turn.text for turn in conversation.turns if turn.role == "system"]
    return any(_JSON_PLEASE.search(text) for text in instructions)


def _wanted_calls(conversation: Conversation, said: str) -> list[Call]:
    tools, choice = conversation.tools, conversation.tool_choice
    if choice.startswith("="):
        tools = tuple(tool for tool in tools if tool.name == choice[1:])
    if choice == "none" or not tools or (choice == "auto" and conversation.results):
        return []
    wanted = asked_calls(said, tools)
    if not wanted and not any(turn.role == "tool" for turn in conversation.turns):
        wanted = meant_calls(said, tools)
    if not wanted and choice != "auto":
        wanted = [example_call(said, tools[0])]
    return wanted if conversation.parallel_calls else wanted[:1]


def _written(call: Call, identity: str) -> SandboxToolCall:
    tool, arguments = call
    text = str(next(iter(arguments.values()), "")) if tool.custom else msgspec.json.encode(arguments).decode()
    call_id = f"call_{sha256(identity.encode()).hexdigest()[:24]}"
    return SandboxToolCall(call_id, tool.name, text, custom=tool.custom, namespace=tool.namespace)


def _reasoning(conversation: Conversation, scenario: Scenario) -> str | None:
    thoughts = THOUGHTS.get(conversation.effort or "none", 0) if scenario.reasoning is None else scenario.reasoning
    return _numbered("thought", thoughts) or None


def _numbered(word: str, count: int) -> str:
    return " ".join(f"{word}-{number}" for number in range(1, count + 1))


def _stopped(text: str, stop: Iterable[str]) -> str:
    return text[: min((place for word in stop if (place := text.find(word)) >= 0), default=len(text))]


def _first_tokens(text: str, tokens: int) -> str:
    return text.encode()[: max(tokens, 0) * BYTES_PER_TOKEN].decode(errors="ignore")


def _usage(conversation: Conversation, scenario: Scenario, choices: tuple[SandboxChoice, ...]) -> SandboxUsage | None:
    if scenario.no_usage:
        return None
    pictures = sum(len(choice.pictures) for choice in choices)
    if scenario.usage:
        counted = SandboxUsage(*map(int, scenario.usage.split(",")))
        return replace(counted, painted=min(PICTURE_TOKENS * pictures, counted.completion - counted.reasoning))
    prompt = sum(
        tokens_of(turn.text) + ATTACHMENT_TOKENS * sum(count for _, count in turn.attachments)
        for turn in conversation.turns
    )
    for tool in conversation.tools:
        prompt += tokens_of(tool.name) + tokens_of(tool.description)
        prompt += tokens_of(msgspec.json.encode(tool.schema).decode())
    painted = PICTURE_TOKENS * pictures
    if conversation.only_pictures:
        attached = ATTACHMENT_TOKENS * sum(count for turn in conversation.turns for _, count in turn.attachments)
        return SandboxUsage(prompt, painted, attached=attached, painted=painted)
    reasoning = sum(tokens_of(choice.reasoning) + choice.hidden for choice in choices)
    completion = reasoning + sum(tokens_of(choice.text) for choice in choices)
    completion += sum(tokens_of(call.name) + tokens_of(call.arguments) for choice in choices for call in choice.calls)
    return SandboxUsage(prompt, completion + painted, reasoning=reasoning, painted=painted)
