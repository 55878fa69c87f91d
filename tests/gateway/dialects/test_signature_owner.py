"""Thinking that is sealed for one account: it goes back to the provider that made it, and to no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from apps.gateway.canonical.chat import Chat, DroppedField, Message, Reasoning, Source, Target, Text
from apps.gateway.canonical.events import ReasoningDelta
from apps.gateway.dialects.adapting.thinking import (
    add_signature_owner,
    client_signature_format,
    remove_signature_owner,
)
from apps.gateway.dialects.chat.responses.wire import SIGNATURE_FORMAT as SIGNATURE
from tests.support.anthropic_requests import ask as ask_messages
from tests.support.providers_of_every_format import play
from tests.support.upstream import Caller, chunks_of

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
ANTHROPICS_WEATHER = {"name": "weather", "input_schema": {"type": "object", "properties": {}}}


def chat_of(*blocks: Reasoning, dialect: str = "openai") -> Chat:
    """Return a conversation whose answer began with these thoughts."""
    answer = Message(role="assistant", parts=[*blocks, Text(text="Sun")])
    messages = [Message(role="user", parts=[Text(text="?")]), answer]
    return Chat(model="m", messages=messages, dialect=dialect, source=Source(dialect=dialect, body=b"{}"))


def test_only_seals_of_an_account_get_an_owner() -> None:
    sealed, other = ReasoningDelta(data="x", format=SIGNATURE), ReasoningDelta(format="anthropic-claude-v1")
    assert add_signature_owner(sealed, "oracle") == ReasoningDelta(data="x", format=f"{SIGNATURE}@oracle")
    assert add_signature_owner(other, "oracle") == ReasoningDelta(format="anthropic-claude-v1")
    assert (
        client_signature_format(SIGNATURE, "oracle"),
        client_signature_format("google-gemini-v1", "oracle"),
        client_signature_format(None, "oracle"),
    ) == (
        f"{SIGNATURE}@oracle",
        "google-gemini-v1",
        None,
    )


def test_the_maker_gets_its_thinking_as_it_made_it() -> None:
    target = Target(model_name="m", facts={})
    chat = remove_signature_owner(
        chat_of(Reasoning(data="x", id="rs_1", format=f"{SIGNATURE}@oracle")), "oracle", target
    )
    assert chat.messages[1].parts[0] == Reasoning(data="x", id="rs_1", format=SIGNATURE)
    assert (chat.source, target.dropped_fields) == (None, [])


@pytest.mark.parametrize(("dialect", "param"), [("openai", "messages[1].reasoning"), ("anthropic", "messages.content")])
def test_another_provider_gets_the_words_alone_and_that_is_noted(dialect: str, param: str) -> None:
    target, sealed = Target(model_name="m", facts={}), Reasoning(data="x", id="rs_1", format=f"{SIGNATURE}@oracle")
    told = Reasoning(text="Hm.", summary=True, id="rs_1", format=f"{SIGNATURE}@oracle")
    before = chat_of(told, sealed, dialect=dialect)
    chat = remove_signature_owner(before, "azure", target)
    assert chat.messages[1].parts == [Reasoning(text="Hm.", summary=True), Text(text="Sun")]
    # Whether words can be said is for the format to tell.
    assert target.dropped_fields == []
    assert len(before.messages[1].parts) == 3
    chat = remove_signature_owner(chat_of(sealed, dialect=dialect), "azure", target)
    assert chat.messages[1].parts == [Text(text="Sun")]
    assert target.dropped_fields == [
        DroppedField(param, "thinking under the seal of another provider, which this one cannot open")
    ]


def test_a_chat_without_such_thinking_is_the_very_same() -> None:
    target = Target(model_name="m", facts={})
    for block in (
        Reasoning(text="Hm."),
        Reasoning(data="x", format=SIGNATURE),
        Reasoning(signature="s", format="a-v1"),
    ):
        chat = chat_of(block)
        assert remove_signature_owner(chat, "azure", target) is chat


@pytest.fixture
def two(caller: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Caller:
    """The caller, in front of two accounts, `one` and `two`, of the maker whose seals hold for one account."""
    for name in ("one", "two"):
        play(caller, "responses", monkeypatch, tmp_path, name)
    return caller


def thoughts_in(caller: Caller, tag: str) -> list[tuple[str, str]]:
    """Return the ids and the seals of the thinking that a provider was sent."""
    (sent,) = caller.sent(tag)
    items = [item for item in sent["body"]["input"] if item.get("type") == "reasoning"]
    return [(item["id"], item["encrypted_content"]) for item in items]


@pytest.mark.parametrize("keeps_only_ids", [False, True])
def test_thinking_returns_to_its_account_alone_for_openais_clients(two: Caller, keeps_only_ids: bool) -> None:
    fields: dict[str, Any] = {"tools": [WEATHER], "reasoning_effort": "low"}
    question = {"role": "user", "content": f"call weather ({uuid4().hex})"}
    answer = two.chat(model="one/tools", messages=[question], **fields).json()["choices"][0]["message"]
    [seal] = [detail for detail in answer["reasoning_details"] if detail["type"] == "reasoning.encrypted"]
    assert seal["format"] == f"{SIGNATURE}@one"
    if keeps_only_ids:
        answer = {"role": "assistant", "content": None, "tool_calls": answer["tool_calls"]}
    result = {"role": "tool", "tool_call_id": answer["tool_calls"][0]["id"], "content": "Sun"}
    for provider, thoughts in (("one", [(seal["id"], seal["data"])]), ("two", [])):
        tag = uuid4().hex
        turns = [{**question, "content": f"call weather [[sandbox tag={tag}]]"}, answer, result]
        response = two.chat(model=f"{provider}/tools", messages=turns, **fields)
        assert response.status_code == 200, response.content
        assert thoughts_in(two, tag) == thoughts
        told = [loss["param"] for loss in response.json()["metadata"].get("warnings", [])]
        assert told == ([] if thoughts or keeps_only_ids else ["messages[1].reasoning"])


@pytest.mark.parametrize("stream", [False, True])
def test_thinking_returns_to_its_account_alone_for_anthropics_clients(two: Caller, stream: bool) -> None:
    fields: dict[str, Any] = {
        "tools": [ANTHROPICS_WEATHER],
        "max_tokens": 4_000,
        "thinking": {"type": "enabled", "budget_tokens": 2_000},
    }
    question = {"role": "user", "content": "call weather"}
    response = ask_messages(two, model="one/tools", messages=[question], stream=stream, **fields)
    if stream:
        starts = [event["content_block"] for event in chunks_of(response) if event["type"] == "content_block_start"]
        content = [{**block, "thinking": "Hm."} if block["type"] == "thinking" else block for block in starts]
    else:
        content = response.json()["content"]
    assert [(block["type"], block.get("format")) for block in content] == [
        ("thinking", f"{SIGNATURE}@one"),
        ("redacted_thinking", f"{SIGNATURE}@one"),
        ("tool_use", None),
    ]
    result = {"type": "tool_result", "tool_use_id": content[2]["id"], "content": "Sun"}
    for provider, thoughts in (("one", [(content[1]["id"], content[1]["data"])]), ("two", [])):
        tag = uuid4().hex
        question["content"] = f"call weather [[sandbox tag={tag}]]"
        turns = [question, {"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
        response = ask_messages(two, model=f"{provider}/tools", messages=turns, **fields)
        assert response.status_code == 200, response.content
        assert thoughts_in(two, tag) == thoughts
