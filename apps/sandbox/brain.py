"""Answers conversations, always the same way. Pure and format-neutral; knows no wire and no time.

What is said, first match wins: the scenario's own text (`empty`, `kb`, `words`, `verbatim`); calls, when tool_choice
demands them or the user's last message says `call <tool>` or `call <tool> and <tool>`; JSON, when a schema asks for it;
`<tool> answered: <result>` after tool results; else `You said: <the last user message>` with its attachments counted.

A token is four bytes of UTF-8, the last one perhaps fewer. The prompt's tokens are those of each message's text (with
directives), 85 for each attachment, and those of each tool's name, description and schema (compact, as given); the
completion's are those of all choices' reasoning, text, call names and arguments. `max_tokens` bounds reasoning and text
of each choice, never calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256

import msgspec

from apps.sandbox.conversation import Answer, Choice, Conversation, Finish, Tool, ToolCall, Usage
from apps.sandbox.example import example_of
from apps.sandbox.scenario import Scenario, split_directives

BYTES_PER_TOKEN = 4
ATTACHMENT_TOKENS = 85
THOUGHTS = {"none": 0, "minimal": 4, "low": 8, "medium": 16, "high": 32, "xhigh": 64}
"""Words of reasoning at each effort."""

_ASKED_CALLS = re.compile(r"\bcall\s+([\w.-]+(?:(?:\s*,\s*|\s+and\s+)[\w.-]+)*)", re.IGNORECASE)
_BETWEEN_NAMES = re.compile(r"\s*,\s*|\s+and\s+")
_KILOBYTE = "sandbox " * 128


def answer_of(conversation: Conversation, scenario: Scenario) -> Answer:
    """Return the answer to a conversation. Raises Refusal where a schema has no example."""
    asked = replace(conversation, streamed=False, wants_usage=False)  # a stream says what the plain reply says
    identity = sha256(msgspec.json.encode(asked)).hexdigest()[:24]
    choices = tuple(_choice(conversation, scenario, identity, index) for index in range(conversation.choices))
    return Answer(identity, conversation.model, choices, _usage(conversation, scenario, choices))


def tokens_of(text: str | None) -> int:
    """Return the number of tokens of a text."""
    return -(-len((text or "").encode()) // BYTES_PER_TOKEN)


def _choice(conversation: Conversation, scenario: Scenario, identity: str, index: int) -> Choice:
    said = split_directives(conversation.question.text)[0] if conversation.question else ""
    scripted = _scripted_text(scenario, said)
    wanted = _wanted_tools(conversation, said) if scripted is None else []
    calls = tuple(_call(tool, f"{identity}/{index}/{place}") for place, tool in enumerate(wanted))
    reasoning = None if scenario.empty else _reasoning(conversation, scenario)
    finish: Finish = "tool_calls" if calls else "stop"
    text = None
    if not calls:
        text = scripted if scripted is not None else _own_text(conversation, scenario, said)
        text += (
            f" (choice {index + 1})" if index and scripted is None and not _wants_json(conversation, scenario) else ""
        )
        text = _stopped(text, conversation.stop)
    if conversation.max_tokens is not None:
        whole = (reasoning, text)
        reasoning = reasoning and _first_tokens(reasoning, conversation.max_tokens)
        text = text and _first_tokens(text, conversation.max_tokens - tokens_of(reasoning))
        finish = finish if (reasoning, text) == whole else "length"
    return Choice(text, reasoning, calls, scenario.finish or finish)


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
        example = example_of(conversation.schema) if conversation.schema else {"answer": f"You said: {said}"}
        return msgspec.json.encode(example).decode()
    if results := conversation.results:
        return "; ".join(f"{turn.name or 'The tool'} answered: {turn.text}" for turn in results)
    attachments = conversation.question.attachments if conversation.question else ()
    counted = ", ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in attachments)
    return f"You said: {said} ({counted})" if counted else f"You said: {said}"


def _wants_json(conversation: Conversation, scenario: Scenario) -> bool:
    return scenario.json or conversation.schema is not None


def _wanted_tools(conversation: Conversation, said: str) -> list[Tool]:
    offered = {tool.name: tool for tool in conversation.tools}
    choice = conversation.tool_choice
    if choice.startswith("="):
        return [offered[choice[1:]]]
    if choice == "none" or not offered or (choice == "auto" and conversation.results):
        return []
    asked = _ASKED_CALLS.search(said)
    wanted = [offered[name] for name in _BETWEEN_NAMES.split(asked[1]) if name in offered] if asked else []
    if choice == "required" and not wanted:
        wanted = [conversation.tools[0]]
    return wanted if conversation.parallel_calls else wanted[:1]


def _call(tool: Tool, identity: str) -> ToolCall:
    arguments = msgspec.json.encode(example_of(tool.schema, "object")).decode()
    return ToolCall(f"call_{sha256(identity.encode()).hexdigest()[:24]}", tool.name, arguments)


def _reasoning(conversation: Conversation, scenario: Scenario) -> str | None:
    thoughts = THOUGHTS.get(conversation.effort or "none", 0) if scenario.reasoning is None else scenario.reasoning
    return _numbered("thought", thoughts) or None


def _numbered(word: str, count: int) -> str:
    return " ".join(f"{word}-{number}" for number in range(1, count + 1))


def _stopped(text: str, stop: Iterable[str]) -> str:
    return text[: min((place for word in stop if (place := text.find(word)) >= 0), default=len(text))]


def _first_tokens(text: str, tokens: int) -> str:
    return text.encode()[: max(tokens, 0) * BYTES_PER_TOKEN].decode(errors="ignore")


def _usage(conversation: Conversation, scenario: Scenario, choices: tuple[Choice, ...]) -> Usage | None:
    if scenario.no_usage:
        return None
    if scenario.usage:
        return Usage(*map(int, scenario.usage.split(",")))
    prompt = sum(
        tokens_of(turn.text) + ATTACHMENT_TOKENS * sum(count for _, count in turn.attachments)
        for turn in conversation.turns
    )
    for tool in conversation.tools:
        prompt += tokens_of(tool.name) + tokens_of(tool.description)
        prompt += tokens_of(msgspec.json.encode(tool.schema).decode())
    reasoning = sum(tokens_of(choice.reasoning) for choice in choices)
    completion = reasoning + sum(tokens_of(choice.text) for choice in choices)
    completion += sum(tokens_of(call.name) + tokens_of(call.arguments) for choice in choices for call in choice.calls)
    return Usage(prompt, completion, reasoning=reasoning)
