"""Blocks and tools of Anthropic's own: read as they are, said in words elsewhere, or refused by their kind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat, Opaque, OpaqueTool, Target
from apps.gateway.dialects.chat import anthropic, cohere, google, openai
from apps.kernel.errors import InvalidRequest

FIND: dict[str, Any] = {"name": "find", "input_schema": {"type": "object"}}
CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "find", "input": {}}]}
LISTING = {"type": "mcp_tool_listing", "mcp_server_name": "pages", "tools": []}
TABS = {"type": "browser_state", "tabs": []}


def asked(*turns: dict[str, Any], **fields: Any) -> Chat:
    """Return the chat of a request."""
    body = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "?"}, *turns], **fields}
    return anthropic.read_request(json.dumps(body).encode())


def answered(*blocks: dict[str, Any]) -> dict[str, Any]:
    """Return the turn in which a tool answers."""
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": list(blocks)}]}


def test_blocks_of_answers_and_of_browsers_are_read_as_they_are() -> None:
    begun = {"role": "assistant", "content": [LISTING, *CALL["content"]]}
    chat = asked(begun, answered({"type": "text", "text": "done"}, TABS), tools=[FIND])
    assert chat.messages[1].parts[0] == Opaque(dialect="anthropic", data=LISTING)
    [result] = chat.messages[2].parts
    assert result.parts[1] == Opaque(dialect="anthropic", data=TABS)  # type: ignore[union-attr] # a tool's result
    wire = json.loads(anthropic.write_request(chat, Target(model_name="m", facts={})))
    assert wire["messages"][1:] == [begun, answered({"type": "text", "text": "done"}, TABS)]


@pytest.mark.parametrize("kind", ["tool_search_tool_bm25", "tool_search_tool_regex"])
def test_a_search_of_tools_is_known_without_its_date(kind: str) -> None:
    tool = {"type": kind, "name": kind}
    chat = asked(tools=[tool])
    assert chat.tools == [OpaqueTool(dialect="anthropic", data=tool)]
    wire = json.loads(anthropic.write_request(chat, Target(model_name="m", facts={})))
    assert wire["tools"] == [tool]


@pytest.mark.parametrize("written", [openai, google])
def test_a_tool_that_only_anthropic_has_is_refused_by_its_kind(written: Any) -> None:
    chat = asked(tools=[FIND, {"type": "bash_20250124", "name": "bash"}])
    with pytest.raises(InvalidRequest) as refusal:
        written.write_request(chat, Target(model_name="m", facts={}))
    assert (refusal.value.code, refusal.value.param, refusal.value.message) == (
        "unsupported_feature",
        "tools[1]",
        "bash_20250124 is a tool that this model's provider does not have",
    )


def test_tools_that_a_search_found_are_named_elsewhere() -> None:
    found = [{"type": "tool_reference", "tool_name": name} for name in ("find", "open")]
    wire = json.loads(
        openai.write_request(asked(CALL, answered(*found), tools=[FIND]), Target(model_name="m", facts={}))
    )
    assert wire["messages"][2] == {
        "role": "tool",
        "tool_call_id": "toolu_1",
        "content": [{"type": "text", "text": "find"}, {"type": "text", "text": "open"}],
    }


@pytest.mark.parametrize("content", ["Sun.", [{"type": "text", "text": "Sun."}]])
def test_a_document_that_is_written_out_is_said_in_words_elsewhere(content: Any) -> None:
    document = {"type": "document", "title": "News", "source": {"type": "content", "content": content}}
    wire = json.loads(
        openai.write_request(asked({"role": "user", "content": [document]}), Target(model_name="m", facts={}))
    )
    assert wire["messages"][1]["content"] == "News\nSun."


@pytest.mark.parametrize(("title", "text"), [({"title": "News"}, "News\nSun, 21 °C."), ({}, "Sun, 21 °C.")])
@pytest.mark.parametrize("written", [openai, cohere])
def test_a_document_of_plain_text_is_said_as_text_where_there_are_no_such_documents(
    written: Any, title: dict[str, str], text: str
) -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "Sun, 21 °C."}
    turn = {"role": "user", "content": [{"type": "document", **title, "source": source}, {"type": "text", "text": "?"}]}
    wire = json.loads(written.write_request(asked(turn), Target(model_name="m", facts={})))
    assert wire["messages"][1]["content"] == [{"type": "text", "text": text}, {"type": "text", "text": "?"}]
    back = json.loads(anthropic.write_request(asked(turn), Target(model_name="m", facts={})))
    assert back["messages"][1] == turn


def test_a_pdf_stays_a_file() -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
    turn = {"role": "user", "content": [{"type": "document", "source": source}]}
    wire = json.loads(openai.write_request(asked(turn), Target(model_name="m", facts={})))
    assert wire["messages"][1]["content"] == [
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0="}}
    ]
    with pytest.raises(InvalidRequest, match="content that this model's provider has no form for"):
        cohere.write_request(asked(turn), Target(model_name="m", facts={}))


def test_content_that_cannot_be_said_elsewhere_is_refused_by_its_kind() -> None:
    picture = {"type": "image", "source": {"type": "url", "url": "https://x.org/a.png"}}
    document = {"type": "document", "source": {"type": "content", "content": [picture]}}
    for turns, kind in (
        ([{"role": "user", "content": [document]}], "document"),
        ([CALL, answered(TABS)], "browser_state"),
    ):
        with pytest.raises(InvalidRequest) as refusal:
            openai.write_request(asked(*turns, tools=[FIND]), Target(model_name="m", facts={}))
        assert refusal.value.message == f"A message holds content that this model's provider has no form for: {kind}"
