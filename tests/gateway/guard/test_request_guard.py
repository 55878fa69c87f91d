"""Masked parts of a request are nowhere but in the client's answer: not at the provider, in a store or a log."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from apps.guardrails.models import Violation
from apps.organizations.models import Organization, Project
from tests.support.anthropic_requests import ask, speak
from tests.support.guardrails_in_force import guard, waiting, written
from tests.support.upstream import Caller, settle_all

# Values that must be seen nowhere: an address of mail for each place, so that a test tells which was forgotten.
DOMAIN = "zanzibar-post.com"
MASK, NUMBERED = r"\[EMAIL_REDACTED\]", r"\[EMAIL_[0-9]+\]"


class Places:
    """Addresses of mail, each for a place of a request."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, name: str) -> str:
        self.names.append(name)
        return f"write to {name}.{uuid4().hex[:6]}@{DOMAIN} today"


def url_of(text: str, kind: str) -> str:
    return f"data:{kind};base64,{b64encode(text.encode()).decode()}"


def openai_body(word: Places) -> dict[str, Any]:
    arguments = json.dumps({"to": word("argument"), "deep": [{"er": word("deep")}]})
    escaped = json.dumps({"note": word("escaped")}).replace("@", "\\u0040")
    return {
        "messages": [
            {"role": "system", "content": word("system")},
            {"role": "developer", "content": [{"type": "text", "text": word("developer")}]},
            {"role": "user", "content": [{"type": "text", "text": word("one")}, {"type": "text", "text": word("two")}]},
            {
                "role": "assistant",
                "content": word("assistant"),
                "reasoning_content": word("thought"),
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "mail", "arguments": arguments}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": escaped},
            {"role": "assistant", "content": word("again")},
            {
                "role": "user",
                "content": [
                    {
                        "type": "file",
                        "file": {"file_data": url_of(word("file"), "text/plain"), "filename": word("name")},
                    },
                    {"type": "text", "text": word("last")},
                ],
            },
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "mail",
                    "description": word("described"),
                    "parameters": {
                        "type": "object",
                        "properties": {"to": {"type": "string", "description": word("parameter")}},
                    },
                },
            }
        ],
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "form",
                "description": word("form"),
                "schema": {"type": "object", "title": word("schema"), "properties": {}},
            },
        },
        "prediction": {"type": "content", "content": word("prediction")},
    }


def anthropic_body(word: Places) -> dict[str, Any]:
    return {
        "system": [{"type": "text", "text": word("system"), "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "document",
                        "title": word("title"),
                        "context": word("context"),
                        "source": {"type": "text", "media_type": "text/plain", "data": word("document")},
                    },
                    {"type": "text", "text": word("text")},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": word("said")},
                    {"type": "tool_use", "id": "t1", "name": "look", "input": {"city": word("input"), "n": [1]}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": [{"type": "text", "text": json.dumps({"found": word("result")})}],
                    },
                    {"type": "text", "text": word("last")},
                ],
            },
        ],
        "tools": [
            {
                "name": "look",
                "description": word("described"),
                "input_schema": {"type": "object", "properties": {"city": {"description": word("parameter")}}},
            }
        ],
    }


@pytest.mark.parametrize("upstream", ["openai", "anthropic"])
@pytest.mark.parametrize("client_format", ["openai", "anthropic"])
@pytest.mark.parametrize(("retention", "restore"), [("retain", True), ("metadata", False)])
def test_what_is_masked_is_nowhere_but_in_a_restored_answer(
    caller: Caller, client_format: str, upstream: str, retention: str, restore: bool, caplog: Any, capfd: Any
) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(retention_level=retention)
    Project.objects.filter(pk=caller.key.project_id).update(caching_enabled=True, cache_duration_seconds=60)
    everyone = {"roles": {"system": "redact", "tool_result": "redact"}}
    guard(caller, rules={"pii_detection": "redact"}, pii_detection={"restore": restore, **everyone})
    speak(upstream)
    word, tag = Places(), uuid4().hex
    body = openai_body(word) if client_format == "openai" else anthropic_body(word)
    body["messages"][-1]["content"].append({"type": "text", "text": f"[[sandbox tag={tag}]]"})
    answer = (caller.chat if client_format == "openai" else partial(ask, caller))(**body, max_tokens=50)
    assert answer.status_code == 200, answer.content
    held = waiting()
    assert settle_all() == 1
    [sent] = caller.sent(tag)
    everywhere = {
        "upstream": plain(sent),
        "answer": answer.content.decode(),
        "outbox": held,
        "store": waiting(),
        "tables": written(),
        "logs": "\n".join([caplog.text, *capfd.readouterr()]),
    }
    # The sandbox fills OpenAI's response format with other words.
    expected = {**dict.fromkeys(everywhere, False), "answer": restore and client_format == "anthropic"}
    assert {where: DOMAIN in text for where, text in everywhere.items()} == expected
    # Nothing else was taken away: of every place that this upstream has a word for, the rest was sent.
    lost = {"anthropic": {"prediction", "thought", "form", "name"}, "openai": {"context"}}[upstream]
    lost = lost if client_format != upstream else set()
    assert len(re.findall(NUMBERED if restore else MASK, plain(sent))) >= len(word.names) - len(lost)
    assert Violation.objects.count() == min(len(word.names), 50)
    assert {row.action_taken for row in Violation.objects.all()} == {"redacted"}
    shown = {row.matched_content for row in Violation.objects.all()}
    assert all("***om" in one for one in shown) if retention == "retain" else shown == {""}


def plain(sent: dict[str, Any]) -> str:
    """Return the request to the provider as text, with base64 decoded."""
    text = json.dumps(sent)
    return re.sub(r"(?<=base64,)[A-Za-z0-9+/]+=*", lambda it: b64decode(it[0]).decode(), text)
