"""Stop sequences for a model that takes none: cut by the gateway, over real HTTP, for clients of both formats."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from apps.logs.models import RequestLog
from tests.gateway.dialects.chat.responses.test_end_to_end import ask, oracle
from tests.support.anthropic_requests import ask as ask_messages
from tests.support.upstream import Caller, chunks_of, settle_all

__all__ = ["oracle"]
WORDS = "alpha beta Observation: gamma delta"


def said(chunks: list[Any]) -> str:
    """Return the text of a stream."""
    return "".join(
        choice["delta"].get("content") or "" for chunk in chunks[:-1] for choice in chunk["choices"] if choice["delta"]
    )


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_ends_before_its_stop_and_is_billed_for_what_was_produced(oracle: Caller, stream: bool) -> None:
    tag = uuid4().hex
    content = f"{WORDS} [[sandbox verbatim tag={tag}]]"
    response = ask(oracle, content, stop=["Observation:"], stream=stream)
    assert response.status_code == 200, response.content
    if stream:
        chunks = chunks_of(response)
        assert (said(chunks), chunks[-1]) == ("alpha beta ", "[DONE]")
        assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
        metadata = chunks[-2]["metadata"]
    else:
        choice = response.json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("alpha beta ", "stop")
        metadata = response.json()["metadata"]
    assert "warnings" not in metadata
    assert "stop" not in oracle.sent(tag)[0]["body"]
    settle_all()
    row = RequestLog.objects.get(project_id=oracle.key.project_id)
    assert (row.unified_finish_reason, row.used_provider) == ("completed", "oracle")
    assert row.completion_tokens is not None
    assert row.completion_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
def test_anthropics_clients_learn_which_sequence_it_was(oracle: Caller, stream: bool) -> None:
    content = f"{WORDS} [[sandbox verbatim tag={uuid4().hex}]]"
    response = ask_messages(
        oracle, content, model="oracle/echo", stop_sequences=["zeta", "Observation:"], stream=stream
    )
    if stream:
        events = chunks_of(response)
        end = next(event["delta"] for event in events if event["type"] == "message_delta")
        text = "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")
    else:
        end = response.json()
        text = end["content"][0]["text"]
    assert (text, end["stop_reason"], end["stop_sequence"]) == ("alpha beta ", "stop_sequence", "Observation:")
