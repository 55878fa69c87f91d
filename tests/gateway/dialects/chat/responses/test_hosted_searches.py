"""Searches that a provider of the Responses format runs itself: its clients see them, others get the pages found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import (
    Annotated,
    Event,
    Failed,
    Finished,
    Summary,
    ToolCallStarted,
    UsageReported,
    fold,
)
from apps.gateway.dialects.chat import openai, responses
from apps.kernel.errors import InvalidRequest
from apps.kernel.usage import Usage

STEP = {
    "type": "custom_tool_call",
    "id": "ctc_1",
    "call_id": "xs_call_1",
    "name": "x_keyword_search",
    "status": "completed",
    "input": '{"query":"from:xai"}',
}
POST = {"type": "url_citation", "url": "https://x.example/1"}
MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "News.", "annotations": [POST]}],
}
# An Agent API's answer: the call of its own search begins as a function call and ends as the pages that were found.
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "search_web",
    "arguments": '{"queries":["bern"]}',
    "status": "completed",
}
PAGES = [
    {"id": 1, "url": "https://bern.example", "title": "Bern", "snippet": "A city.", "source": "web"},
    {"id": 2, "url": "https://aare.example", "snippet": "A river."},
    {"id": 1, "url": "https://bern.example", "title": "Bern again"},
]
FOUND = {"type": "search_results", "queries": ["bern"], "results": PAGES}
PLAIN = {**MESSAGE, "content": [{"type": "output_text", "text": "Bern [1].", "annotations": []}]}
USAGE = {
    "input_tokens": 3007,
    "output_tokens": 36,
    "total_tokens": 3043,
    "input_tokens_details": {
        "cache_creation_input_tokens": 1224,
        "cache_read_input_tokens": 1780,
        "cached_tokens": 1780,
    },
    "output_tokens_details": {"reasoning_tokens": 0},
    "tool_calls_details": {
        "search_web": {"cost_usd": 0.001, "invocation": 1},
        "fetch_url": {"invocation": 2},
        "search_people": {"invocation": 0},
    },
    "cost": {"currency": "USD", "total_cost": 0.00119, "tool_calls_cost": 0.001},
}


def response(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "resp_1", "model": "m", "created_at": 1, "status": "completed", "output": list(items), **fields}


def whole(*items: dict[str, Any], **fields: Any) -> list[Event]:
    return list(responses.read_reply(json.dumps(response(*items, **fields)).encode()))


def streamed(*events: dict[str, Any]) -> list[Event]:
    return list(responses.read_events(json.dumps(event).encode() for event in events))


def added(at: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": at, "item": item}


def done(at: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": at, "item": item}


def completed(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "response.completed", "response": response(*items, **fields)}


def chat_of(**fields: Any) -> Chat:
    return responses.read_request(json.dumps({"model": "m", "input": "?", **fields}).encode())


def items_for_own_client(events: list[Event], *, live: bool) -> list[dict[str, Any]]:
    """Return the items that a client of this format gets."""
    chat = chat_of(stream=live)
    if not live:
        body: dict[str, Any] = json.loads(
            responses.write_reply(fold(events), Summary(usage=Usage(), cost={}, metadata={}), chat)
        )
        return list(body["output"])

    def ended() -> Iterator[Event]:
        yield from events
        yield Summary(usage=Usage(), cost={}, metadata={})

    told = b"".join(responses.write_events(ended(), chat)).decode()
    frames = [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: ")]
    return list(frames[-1]["response"]["output"])


X_SEARCH_STREAM = [
    added(0, {**STEP, "input": "", "status": "in_progress"}),
    {"type": "response.custom_tool_call_input.delta", "output_index": 0, "item_id": "ctc_1", "delta": STEP["input"]},
    {"type": "response.custom_tool_call_input.done", "output_index": 0, "item_id": "ctc_1", "input": STEP["input"]},
    added(1, {**MESSAGE, "content": [], "status": "in_progress"}),
    {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "News."},
    done(0, STEP),
    done(1, MESSAGE),
    completed(STEP, MESSAGE),
]


@pytest.mark.parametrize("events", [whole(STEP, MESSAGE), streamed(*X_SEARCH_STREAM)], ids=["whole", "streamed"])
def test_a_step_of_a_search_of_x_is_no_call_for_the_client(events: list[Event]) -> None:
    assert not any(isinstance(event, ToolCallStarted) for event in events)
    [finished] = [event for event in events if isinstance(event, Finished)]
    assert finished.reason == "stop"
    [cited] = [event.annotation for event in events if isinstance(event, Annotated)]
    assert cited["url_citation"]["url"] == "https://x.example/1"


@pytest.mark.parametrize("live", [False, True])
def test_a_post_without_a_title_has_all_that_chat_clients_parse(live: bool) -> None:
    summary = Summary(usage=Usage(), cost={}, metadata={})
    body = {"model": "m", "messages": [{"role": "user", "content": "News?"}], "stream": live}
    asked = openai.read_request(json.dumps(body).encode())
    if live:
        told = b"".join(openai.write_events([*streamed(*X_SEARCH_STREAM), summary], asked)).decode()
        chunks = [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: {")]
        deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        notes = [note for delta in deltas for note in delta.get("annotations", ())]
    else:
        message = json.loads(openai.write_reply(fold(whole(STEP, MESSAGE)), summary, asked))["choices"][0]["message"]
        assert "tool_calls" not in message
        notes = message["annotations"]
    url = "https://x.example/1"
    assert notes == [
        {"type": "url_citation", "url_citation": {"url": url, "title": url, "start_index": 0, "end_index": 5}}
    ]


def test_steps_of_a_search_of_x_are_counted_unless_the_provider_counts_them() -> None:
    usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    [seen] = [it for it in whole(STEP, STEP, MESSAGE, usage=usage) if isinstance(it, UsageReported)]
    assert seen.usage.tool_calls == {"x_search": 2}
    told = {**usage, "server_side_tool_usage_details": {"x_search_calls": 1}}
    [counted] = [it for it in whole(STEP, STEP, MESSAGE, usage=told) if isinstance(it, UsageReported)]
    assert counted.usage.tool_calls == {"x_search": 1}


@pytest.mark.parametrize("live", [False, True])
def test_its_own_clients_get_the_steps_as_they_are(live: bool) -> None:
    events = streamed(*X_SEARCH_STREAM) if live else whole(STEP, MESSAGE)
    items = items_for_own_client(events, live=live)
    assert [item["type"] for item in items] == ["custom_tool_call", "message"]
    assert items[0] == STEP


def test_a_step_that_comes_back_needs_no_result_and_reaches_its_own_format_alone() -> None:
    chat = chat_of(input=[{"role": "user", "content": "News?"}, STEP, {"role": "user", "content": "More"}])
    target = Target(model_name="m", facts={})
    sent = json.loads(responses.write_request(chat, target))["input"]
    assert sent == [{"role": "user", "content": "News?"}, STEP, {"role": "user", "content": "More"}]
    assert target.dropped_fields == []
    other = Target(model_name="m", facts={})
    messages = json.loads(openai.write_request(chat, other))["messages"]
    assert [message["role"] for message in messages if message["role"] != "assistant"] == ["user", "user"]
    assert "tool_calls" not in json.dumps(messages)
    assert len(other.dropped_fields) == 1


@pytest.mark.parametrize("tool", [{"type": "x_search"}, {"type": "x_search", "allowed_x_handles": ["xai"]}])
def test_a_search_of_x_can_be_asked_for_in_both_of_openais_formats(tool: dict[str, Any]) -> None:
    from_chat = openai.read_request(
        json.dumps({"model": "m", "messages": [{"role": "user", "content": "?"}], "tools": [tool]}).encode()
    )
    for chat in (from_chat, chat_of(tools=[tool])):
        assert json.loads(responses.write_request(chat, Target(model_name="m", facts={})))["tools"] == [tool]


AGENT_STREAM = [
    added(0, CALL),
    {"type": "response.reasoning.search_queries", "queries": ["bern"]},
    done(0, FOUND),
    added(1, {**PLAIN, "content": None}),
    {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "Bern [1]."},
    done(1, PLAIN),
    completed(FOUND, PLAIN, usage=USAGE, service_tier="fast"),
]


@pytest.mark.parametrize(
    "events",
    [whole(FOUND, PLAIN, usage=USAGE, service_tier="fast"), streamed(*AGENT_STREAM)],
    ids=["whole", "streamed"],
)
def test_pages_that_a_search_found_are_citations_and_its_call_is_none_of_the_clients(events: list[Event]) -> None:
    assert not any(isinstance(event, ToolCallStarted) for event in events)
    assert [event.annotation["url_citation"] for event in events if isinstance(event, Annotated)] == [
        {"start_index": 0, "end_index": 0, "url": "https://bern.example", "title": "Bern"},
        {"start_index": 0, "end_index": 0, "url": "https://aare.example", "title": "https://aare.example"},
    ]
    [reported] = [event.usage for event in events if isinstance(event, UsageReported)]
    assert (reported.input, reported.cache_read, reported.cache_write, reported.output) == (3, 1780, 1224, 36)
    assert (reported.web_searches, reported.reported_search_cost) == (1, Decimal("0.001"))
    assert reported.tool_calls == {"fetch_url": 2}
    assert events[-1] == Finished(reason="stop", native="completed")


@pytest.mark.parametrize("live", [False, True])
def test_its_own_clients_get_the_pages_as_an_item_and_as_citations(live: bool) -> None:
    events = streamed(*AGENT_STREAM) if live else whole(FOUND, PLAIN, usage=USAGE)
    found, message = items_for_own_client(events, live=live)
    assert found == FOUND
    assert [note["url"] for note in message["content"][0]["annotations"]] == [
        "https://bern.example",
        "https://aare.example",
    ]


def test_citations_of_the_text_stand_in_place_of_the_pages() -> None:
    events = whole(FOUND, MESSAGE)
    assert [it.annotation["url_citation"]["url"] for it in events if isinstance(it, Annotated)] == [
        "https://x.example/1"
    ]


@pytest.mark.parametrize("ends", [True, False])
def test_a_clients_call_that_is_complete_as_it_begins_is_told_once(ends: bool) -> None:
    call = {**CALL, "name": "weather"}
    events = streamed(added(0, call), *([done(0, call)] if ends else []), completed(call))
    [started] = [event for event in events if isinstance(event, ToolCallStarted)]
    assert (started.name, started.id) == ("weather", "call_1")
    [answered] = fold(events).choices
    assert [(it.name, it.arguments) for it in answered.tool_calls] == [("weather", CALL["arguments"])]
    assert answered.finish == "tool_calls"


def test_a_failure_beside_the_response_keeps_its_words() -> None:
    [failed] = streamed({"type": "response.failed", "error": {"message": "No model.", "code": 503}})
    assert isinstance(failed, Failed)
    assert (failed.error.message, failed.error.status) == ("No model.", 503)


AGENT: dict[str, Any] = {
    "strict": True,
    "form_field": "response_format",
    "search_limits": "domain_filter",
    "always_searches": True,
    "takes": ["max_steps"],
    "unsupported": ["include", "reasoning_summary", "prompt_cache_key", "service_tier", "user"],
}
HI = [{"role": "user", "content": "Hi"}]


def sent_for(body: dict[str, Any], **facts: Any) -> tuple[dict[str, Any], list[str]]:
    """Return what an Agent API is sent, and the fields that were dropped."""
    target = Target(model_name="acme/sonar", facts={**AGENT, **facts})
    read = responses.read_request if "input" in body else openai.read_request
    wire = json.loads(responses.write_request(read(json.dumps({"model": "m", **body}).encode()), target))
    return wire, [dropped.param for dropped in target.dropped_fields]


def test_a_plain_question_is_searched_for() -> None:
    assert sent_for({"messages": HI}) == (
        {
            "model": "acme/sonar",
            "input": HI,
            "store": False,
            "tools": [{"type": "web_search"}],
            "tool_choice": {"type": "web_search"},
        },
        [],
    )


def test_a_preset_is_sent_with_the_model_that_is_stated_for_it() -> None:
    wire, _ = sent_for({"messages": HI}, model_field="preset", adds={"model": "acme/fox"}, always_searches=False)
    assert wire == {"model": "acme/fox", "preset": "acme/sonar", "input": HI, "store": False}


def test_filters_and_options_of_its_former_format_limit_the_search() -> None:
    wire, dropped = sent_for(
        {
            "messages": HI,
            "search_domain_filter": ["bern.example", "-x.example"],
            "search_recency_filter": "week",
            "return_images": True,
            "web_search_options": {
                "search_context_size": "low",
                "user_location": {"type": "approximate", "approximate": {"country": "CH", "timezone": "Europe/Zurich"}},
            },
        }
    )
    assert wire["tools"] == [
        {
            "type": "web_search",
            "user_location": {"country": "CH"},
            "search_context_size": "low",
            "filters": {"search_domain_filter": ["bern.example", "-x.example"], "search_recency_filter": "week"},
        }
    ]
    assert dropped == ["return_images"]


def test_domains_of_a_client_of_the_format_become_a_filter() -> None:
    search = {"type": "web_search", "filters": {"allowed_domains": ["a.example"], "blocked_domains": ["b.example"]}}
    wire, dropped = sent_for({"input": "Hi", "tools": [search], "max_steps": 3, "x_more": 1})
    assert wire["tools"] == [{"type": "web_search", "filters": {"search_domain_filter": ["a.example", "-b.example"]}}]
    assert (wire["max_steps"], "x_more" in wire, dropped) == (3, False, ["x_more"])


def test_a_strict_provider_gets_back_words_alone() -> None:
    answer = {**MESSAGE, "content": [{"type": "output_text", "text": "Bern.", "annotations": [POST]}]}
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    wire, dropped = sent_for({"input": [*HI, thought, FOUND, answer, *HI]})
    assert wire["input"] == [*HI, {"role": "assistant", "content": "Bern."}, *HI]
    assert len(dropped) >= 2


def test_the_form_of_an_answer_is_stated_in_its_own_field() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": True}}
    target = Target(model_name="m", facts={**AGENT, "structured_outputs": "native"})
    body = {"model": "m", "messages": HI, "response_format": form, "verbosity": "low"}
    wire = json.loads(responses.write_request(openai.read_request(json.dumps(body).encode()), target))
    assert wire["response_format"] == form
    assert wire["text"] == {"verbosity": "low"}


def test_which_tool_of_a_server_must_be_called_is_kept() -> None:
    server = {"type": "mcp", "server_label": "docs", "server_url": "https://docs.example"}
    choice = {"type": "mcp", "server_label": "docs", "name": "ask"}
    wire = json.loads(
        responses.write_request(chat_of(tools=[server], tool_choice=choice), Target(model_name="m", facts={}))
    )
    assert wire["tool_choice"] == choice
    with pytest.raises(InvalidRequest, match="name"):
        chat_of(tools=[server], tool_choice={**choice, "name": 5})


def test_a_summary_is_asked_for_without_an_effort_too() -> None:
    from_chat = openai.read_request(
        json.dumps({"model": "m", "messages": HI, "reasoning": {"summary": "detailed"}}).encode()
    )
    for chat in (from_chat, chat_of(reasoning={"summary": "detailed"})):
        assert chat.reasoning is not None
        wire = json.loads(responses.write_request(chat, Target(model_name="m", facts={})))
        assert wire["reasoning"] == {"summary": "detailed"}
