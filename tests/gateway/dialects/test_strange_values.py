"""Each value of the cases' requests and answers, replaced in turn by one of another kind: nothing fails on it.

`test_laws.py` draws such values; here is every place, so that a fault never waits for luck.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pkgutil import iter_modules
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from apps.gateway import dialects
from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Failed, fold
from apps.gateway.dialects import chat as chat_formats
from apps.kernel.errors import InvalidRequest
from tests.gateway.dialects.test_laws import CLIENTS, DIALECTS, QUESTION, SUMMARY, WIRE, side_of

# A list looks up no set and no dictionary, and a number has neither members nor a length.
STRANGE: tuple[Any, ...] = ([], 7)
# Formats of clients alone.
CLIENTS_ALONE = {
    name: client
    for _, name, _ in iter_modules(chat_formats.__path__)
    if name not in DIALECTS and (client := dialects.find_client_dialect(name)) is not None
}
ALL_CLIENTS = {**CLIENTS, **CLIENTS_ALONE}
# Requests that no case has, by the client's format; a format of clients alone has no cases.
REQUESTS: dict[str, list[Any]] = {
    "openai": [
        {
            "model": "m",
            "messages": [{"role": "user", "content": "?"}],
            "response_format": {
                "type": "json_schema",
                "json_schema": {
                    "name": "form",
                    "schema": {
                        "type": "object",
                        "properties": {"day": {"type": ["string", "null"], "format": "date", "enum": ["a", None]}},
                        "required": ["day"],
                    },
                },
            },
        }
    ],
    "anthropic": [
        {
            "model": "m",
            "max_tokens": 100,
            "tools": [{"name": "look", "input_schema": {"type": "object"}}],
            "messages": [
                {"role": "user", "content": "?"},
                {
                    "role": "system",
                    "output_config": {"effort": "low"},
                    "content": [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "look"}}],
                },
                {"role": "user", "content": "And now?"},
            ],
        }
    ],
    "completions": [
        {
            "model": "m",
            "prompt": ["?"],
            "suffix": "",
            "max_tokens": 9,
            "temperature": 0.5,
            "seed": 1,
            "stop": ["."],
            "logit_bias": {"9": 1},
            "n": 1,
            "best_of": 1,
            "echo": True,
            "metadata": {"topic": "a"},
        }
    ],
    "ollama": [
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "?", "images": ["iVBORw0KGgoAAAANSUhEUg=="]},
                {
                    "role": "assistant",
                    "content": "",
                    "thinking": "Hm.",
                    "tool_calls": [{"id": "a", "function": {"index": 0, "name": "look", "arguments": {"at": 1}}}],
                },
                {"role": "tool", "tool_name": "look", "tool_call_id": "a", "content": "Nothing."},
            ],
            "tools": [
                {"type": "function", "function": {"name": "look", "description": "", "parameters": {"type": "object"}}}
            ],
            "format": {"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]},
            "options": {"num_predict": 9, "temperature": 0.5, "top_k": 3, "stop": ["."], "min_p": 0.5, "num_ctx": 9},
            "think": "high",
            "keep_alive": "5m",
            "stream": False,
            "truncate": True,
        }
    ],
    "ollama_generate": [
        {
            "model": "m",
            "prompt": "?",
            "system": "Be brief.",
            "images": ["iVBORw0KGgoAAAANSUhEUg=="],
            "options": {"num_predict": 9, "temperature": 0.5, "seed": 1},
            "context": [1],
            "raw": True,
            "template": "{{ .Prompt }}",
            "suffix": "",
        }
    ],
}
ANSWER = {
    "id": "a",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "Hi"},
            "logprobs": {
                "content": [{"token": "Hi", "logprob": -0.1, "top_logprobs": [{"token": "Hi", "logprob": -0.1}]}]
            },
        }
    ],
}


def replaced(value: Any) -> Iterator[Any]:
    """Yield the JSON value with each value in it, in turn, replaced by each strange one."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, old in list(inner):
        for new in (*STRANGE, *replaced(old)):
            yield {**value, key: new} if isinstance(value, dict) else [*value[:key], new, *value[key + 1 :]]


def requests_of(name: str) -> Iterator[Any]:
    yield from REQUESTS.get(name, ())
    for case in sorted((WIRE / name).glob("*/request.json")):
        if side_of(case.parent) == name:
            yield json.loads(case.read_text())


@pytest.mark.parametrize("name", ALL_CLIENTS)
def test_a_request_is_written_for_every_provider_or_refused(name: str) -> None:
    # The second takes no schemas, which are sent as tools.
    targets = [Target(model_name="m", facts=facts) for facts in ({}, {"structured_outputs": "tool"})]
    written = 0
    for request in requests_of(name):
        for strange in replaced(request):
            try:
                chat = ALL_CLIENTS[name].read_request(msgspec.json.encode(strange))
            except InvalidRequest:
                continue
            for dialect in DIALECTS.values():
                for target in targets:
                    written += is_written(dialect, replace(chat, source=None), target)
    assert written > 100, f"REQUESTS has too few fields of the format {name}"


def is_written(dialect: Any, chat: Chat, target: Target) -> bool:
    try:
        return bool(dialect.write_request(chat, target))
    except InvalidRequest:
        return False


@pytest.mark.parametrize("name", DIALECTS)
def test_an_answer_is_written_for_every_client(name: str) -> None:
    dialect = DIALECTS[name]
    answers = [json.loads(case.read_text()) for case in sorted((WIRE / name).glob("*/reply.json"))]
    for answer in [*answers, ANSWER]:
        for strange in replaced(answer):
            body = msgspec.json.encode(strange)
            for events in (list(dialect.read_reply(body)), list(dialect.read_events([body]))):
                write_for_clients(events)


def write_for_clients(events: list[Event]) -> None:
    if events and isinstance(events[-1], Failed):
        return
    for name, client in ALL_CLIENTS.items():
        question = replace(QUESTION, dialect=name)
        assert b"".join(client.write_events([*events, SUMMARY], question))
        assert client.write_reply(fold(events), SUMMARY, question)
