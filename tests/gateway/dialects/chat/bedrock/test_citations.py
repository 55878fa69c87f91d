"""Citations of documents: asked of Bedrock, and brought from it to clients of Anthropic's format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Annotated, Finished, Started, TextDelta, fold
from apps.gateway.dialects.chat import anthropic, bedrock, cohere, google, openai, responses
from apps.gateway.dialects.chat.bedrock.provider.read_answer import read_citation, write_cited_text
from tests.gateway.dialects.test_laws import SUMMARY

PDF = "JVBERi0xLjQKJSVFT0YK"
CITING = Target(model_name="claude", facts={"takes": ["citations"]})


def asked(**document: Any) -> Chat:
    source = {"type": "base64", "media_type": "application/pdf", "data": PDF}
    content = [{"type": "document", "source": source, "title": "Map", **document}, {"type": "text", "text": "Weather?"}]
    body = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": content}]}
    return anthropic.read_request(json.dumps(body).encode())


def sent(chat: Chat, target: Target) -> dict[str, Any]:
    block: dict[str, Any] = json.loads(bedrock.write_request(chat, target))["messages"][0]["content"][0]
    return block


CITED = asked(citations={"enabled": True}, context="A map of Norway")
DOCUMENT = {"format": "pdf", "name": "Map", "source": {"bytes": PDF}}


def test_a_document_that_is_to_be_cited_is_sent_so_to_a_model_that_cites() -> None:
    whole = {**DOCUMENT, "context": "A map of Norway", "citations": {"enabled": True}}
    assert sent(CITED, CITING) == {"document": whole}
    assert CITING.dropped_fields == []
    assert sent(asked(citations={"enabled": False}), CITING) == {"document": DOCUMENT}


def test_to_others_the_client_is_told_that_nothing_is_cited() -> None:
    target = Target(model_name="nova", facts={})
    assert sent(CITED, target) == {"document": {**DOCUMENT, "context": "A map of Norway"}}
    assert [dropped.param for dropped in target.dropped_fields] == ["messages.content.citations"]


@pytest.mark.parametrize("dialect", [openai, responses, google])
def test_other_formats_cite_no_documents_and_say_so(dialect: Any) -> None:
    target = Target(model_name="fox-1", facts={})
    dialect.write_request(CITED, target)
    assert "messages.content.citations" in [dropped.param for dropped in target.dropped_fields]
    silent = Target(model_name="fox-1", facts={})
    dialect.write_request(asked(citations={"enabled": False}), silent)
    assert silent.dropped_fields == []


@pytest.mark.parametrize("dialect", [openai, responses, google, bedrock, cohere])
def test_a_search_result_that_becomes_words_is_not_cited_either(dialect: Any) -> None:
    result = {
        "type": "search_result",
        "title": "Map",
        "source": "s",
        "content": [{"type": "text", "text": "Oslo"}],
        "citations": {"enabled": True},
    }
    body = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": [result]}]}
    target = Target(model_name="fox-1", facts={})
    dialect.write_request(anthropic.read_request(json.dumps(body).encode()), target)
    assert [dropped.param for dropped in target.dropped_fields] == ["messages.content.citations"]


PLACES = [
    (
        {"documentChar": {"documentIndex": 1, "start": 3, "end": 12}},
        {"type": "char_location", "document_index": 1, "start_char_index": 3, "end_char_index": 12},
    ),
    (
        {"documentPage": {"documentIndex": 0, "start": 1, "end": 2}},
        {"type": "page_location", "document_index": 0, "start_page_number": 1, "end_page_number": 2},
    ),
    (
        {"documentChunk": {"documentIndex": 0, "start": 4, "end": 5}},
        {"type": "content_block_location", "document_index": 0, "start_block_index": 4, "end_block_index": 5},
    ),
    (
        {"documentChar": {"documentIndex": "x", "start": None}},
        {"type": "char_location", "document_index": 0, "start_char_index": 0, "end_char_index": 0},
    ),
]


def of_bedrock(location: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"title": "Map", "location": location, "sourceContent": [{"text": "Oslo "}, {"text": "is wet."}], **fields}


@pytest.mark.parametrize(("location", "told"), PLACES)
def test_a_citation_reaches_clients_of_anthropics_format(location: dict[str, Any], told: dict[str, Any]) -> None:
    citation, told = of_bedrock(location), {**told, "cited_text": "Oslo is wet.", "document_title": "Map"}
    cited = {"citationsContent": {"content": [{"text": "It rains."}], "citations": [citation]}}
    whole = {"output": {"message": {"role": "assistant", "content": [cited]}}, "stopReason": "end_turn"}
    reply = fold(bedrock.read_reply(json.dumps(whole).encode()))
    answer = json.loads(anthropic.write_reply(reply, SUMMARY, CITED))
    assert answer["content"] == [{"type": "text", "text": "It rains.", "citations": [told]}]
    frames = [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"citation": citation}}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "It rains."}}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"messageStop": {"stopReason": "end_turn"}},
        {"metadata": {"usage": {"inputTokens": 2, "outputTokens": 1, "totalTokens": 3}}},
    ]
    events = list(bedrock.read_events(iter([json.dumps(frame).encode() for frame in frames])))
    assert [event.annotation for event in events if isinstance(event, Annotated)] == [told]
    stream = b"".join(anthropic.write_events([*events, SUMMARY], CITED)).decode()
    deltas = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: ")]
    assert [one["delta"]["citation"] for one in deltas if one.get("delta", {}).get("type") == "citations_delta"] == [
        told
    ]


@pytest.mark.parametrize(("location", "told"), PLACES[:3])
def test_a_citation_of_an_earlier_answer_goes_back_as_it_came(location: dict[str, Any], told: dict[str, Any]) -> None:
    note = {**told, "cited_text": "Oslo is wet.", "document_title": "Map"}
    said = {"type": "text", "text": "It rains.", "citations": [note, {"type": "web_search_result_location"}]}
    hi = {"role": "user", "content": "Hi"}
    body = {"model": "m", "max_tokens": 9, "messages": [hi, {"role": "assistant", "content": [said]}, hi]}
    for facts, blocks in (
        (
            {"takes": ["citations"]},
            [
                {
                    "citationsContent": {
                        "content": [{"text": "It rains."}],
                        "citations": [
                            {"title": "Map", "sourceContent": [{"text": "Oslo is wet."}], "location": location}
                        ],
                    }
                }
            ],
        ),
        ({}, [{"text": "It rains."}]),
    ):
        target = Target(model_name="claude", facts=facts)
        wire = json.loads(bedrock.write_request(anthropic.read_request(json.dumps(body).encode()), target))
        assert wire["messages"][1]["content"] == blocks
        assert target.dropped_fields == []


def test_a_search_results_citation_goes_back_with_its_source() -> None:
    note = {
        "type": "search_result_location",
        "cited_text": "Oslo is wet.",
        "search_result_index": 2,
        "source": "s-1",
        "title": None,
        "start_block_index": 0,
        "end_block_index": 1,
    }
    written = write_cited_text("Wet.", [note])
    assert written is not None
    [citation] = written["citationsContent"]["citations"]
    assert citation == {
        "sourceContent": [{"text": "Oslo is wet."}],
        "source": "s-1",
        "location": {"searchResultLocation": {"searchResultIndex": 2, "start": 0, "end": 1}},
    }
    assert read_citation(citation) == note
    assert write_cited_text("Wet.", None) is write_cited_text("Wet.", ["x", {"type": "char"}]) is None


def test_a_search_results_citation_and_a_pages_are_told_apart() -> None:
    search = {"searchResultLocation": {"searchResultIndex": 2, "start": 0, "end": 1}}
    page = {"web": {"url": "https://a.example/"}}
    citations = [of_bedrock(search, source="s-1"), of_bedrock(page), of_bedrock({}), {"location": None}]
    cited = {"citationsContent": {"content": [{"text": "Wet."}], "citations": citations}}
    whole = {"output": {"message": {"role": "assistant", "content": [cited]}}, "stopReason": "end_turn"}
    notes = fold(bedrock.read_reply(json.dumps(whole).encode())).choices[0].annotations
    assert notes == [
        {
            "type": "search_result_location",
            "cited_text": "Oslo is wet.",
            "search_result_index": 2,
            "source": "s-1",
            "title": "Map",
            "start_block_index": 0,
            "end_block_index": 1,
        },
        {
            "type": "url_citation",
            "url_citation": {"url": "https://a.example/", "title": "Map", "start_index": 0, "end_index": 4},
        },
    ]


def test_clients_of_other_formats_read_such_an_answer() -> None:
    note = {"type": "char_location", "cited_text": "Oslo is wet.", "document_index": 0}
    events = [Started(id="r", model="m"), TextDelta(text="It rains."), Annotated(annotation=note)]
    ended = [*events, Finished(reason="stop"), SUMMARY]
    message = json.loads(openai.write_reply(fold(iter(events)), SUMMARY, CITED))["choices"][0]["message"]
    assert message["provider_specific_fields"] == {"annotations": [note]}
    for dialect in (openai, responses, google):
        chat = openai.read_request(b'{"model":"m","messages":[{"role":"user","content":"Hi"}],"stream":true}')
        told = b"".join(dialect.write_events(ended, chat))
        assert b"It rains." in told
        assert b"Oslo is wet." in told


@pytest.mark.parametrize("live", [False, True])
def test_claudes_citations_of_documents_reach_clients_of_other_formats(live: bool) -> None:
    note = {"type": "char_location", "cited_text": "Oslo is wet.", "document_index": 0, "document_title": "Map"}
    text = {"type": "text", "text": "It rains.", "citations": [note]}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "c", "stop_reason": "end_turn"}
    usage = {"input_tokens": 3, "output_tokens": 2}
    if live:
        frames: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**message, "content": [], "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": {**text, "text": "", "citations": []}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "It rains."}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": note}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
            {"type": "message_stop"},
        ]
        events = list(anthropic.read_events(json.dumps(frame).encode() for frame in frames))
    else:
        events = list(anthropic.read_reply(json.dumps({**message, "content": [text], "usage": usage}).encode()))
    assert [event.annotation for event in events if isinstance(event, Annotated)] == [note]
    reply = fold(iter(events))
    chat = json.loads(openai.write_reply(reply, SUMMARY, CITED))["choices"][0]["message"]
    assert chat["provider_specific_fields"] == {"annotations": [note]}
    assert json.loads(anthropic.write_reply(reply, SUMMARY, CITED))["content"] == [text]
    [candidate] = json.loads(google.write_reply(reply, SUMMARY, CITED))["candidates"]
    assert candidate["groundingMetadata"]["groundingChunks"] == [
        {"retrievedContext": {"title": "Map", "text": "Oslo is wet."}}
    ]
