"""Clients of Bedrock's format: fields of models' own for other makers, others' thinking, streams and errors."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Reasoning, ReasoningRequest, Target, ToolChoice
from apps.gateway.canonical.events import (
    Annotated,
    Choice,
    Event,
    Failed,
    Finished,
    ReasoningDelta,
    Reply,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Waiting,
    fold,
)
from apps.gateway.dialects.chat import anthropic, bedrock, google, openai
from apps.gateway.framing import aws_event_frames
from apps.gateway.guard.chat_texts import ChatTexts
from apps.kernel.errors import AllProvidersFailed, ApiError, Overloaded, RateLimited, Unauthenticated, UpstreamRefused
from tests.gateway.dialects.test_laws import SUMMARY
from tests.support.aws_event_frames import lines_of
from tests.support.unfolding import unfold

USER = {"role": "user", "content": [{"text": "?"}]}


def chat_of(*messages: Any, model_fields: Any = None, **fields: Any) -> Chat:
    wire = {"messages": [USER, *messages], **fields}
    if model_fields is not None:
        wire["additionalModelRequestFields"] = model_fields
    return bedrock.read_request(json.dumps(wire).encode(), "m")


CHAT = chat_of()


def streamed(*events: Event) -> list[tuple[str, Any]]:
    """Return the frames of a stream up to a summary."""
    lines = lines_of(b"".join(bedrock.write_events([Started(), *events, SUMMARY], CHAT)))
    return [(name, json.loads(payload)) for name, _, payload in (line.partition(" ") for line in lines)]


def told(chat: Chat, dialect: Any, **facts: Any) -> tuple[Any, set[str]]:
    """Return what a provider gets, and the fields whose loss a client learns of."""
    target = Target(model_name="m", facts=facts, dropped_fields=[])
    wire = json.loads(dialect.write_request(chat, target))
    return wire, {dropped.param for dropped in target.dropped_fields}


@pytest.mark.parametrize(
    ("fields", "reasoning"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, ReasoningRequest(max_tokens=2048)),
        ({"reasoning_config": {"type": "enabled", "budget_tokens": 9}}, ReasoningRequest(max_tokens=9)),
        ({"thinking": {"type": "disabled"}}, ReasoningRequest(effort="none")),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, ReasoningRequest(effort="low")),
        ({"reasoning_effort": "high"}, ReasoningRequest(effort="high")),
        ({"reasoning_config": "medium"}, ReasoningRequest(effort="medium")),
        ({"reasoning": {"effort": "low"}}, ReasoningRequest(effort="low")),
        ({"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}}, ReasoningRequest(effort="low")),
        ({"reasoningConfig": {"type": "disabled"}}, ReasoningRequest(effort="none")),
    ],
)
def test_thinking_is_read_in_the_form_of_every_maker(fields: dict[str, Any], reasoning: ReasoningRequest) -> None:
    chat = chat_of(model_fields=fields)
    assert (chat.reasoning, chat.extra) == (reasoning, None)


def test_an_effort_of_an_unknown_name_goes_to_bedrock_as_it_is() -> None:
    chat = chat_of(model_fields={"reasoning_effort": "utmost", "k": 3})
    wire, lost = told(chat, bedrock)
    assert (chat.reasoning, lost) == (None, set())
    assert wire["additionalModelRequestFields"] == {"reasoning_effort": "utmost", "k": 3}
    assert told(chat, openai)[1] == {"additionalModelRequestFields.reasoning_effort", "additionalModelRequestFields.k"}


def test_thinking_that_is_left_to_the_model_stays_so_at_bedrock_and_is_no_loss_elsewhere() -> None:
    chat = chat_of(model_fields={"thinking": {"type": "adaptive"}})
    wire, lost = told(chat, bedrock, reasoning_form="thinking")
    assert (wire["additionalModelRequestFields"], lost) == ({"thinking": {"type": "adaptive"}}, set())
    assert told(chat, openai)[1] == set()


def test_fields_of_one_maker_reach_models_of_another() -> None:
    chat = chat_of(model_fields={"inferenceConfig": {"topK": 5}, "reasoning_effort": "low"})
    wire, lost = told(chat, bedrock, reasoning_form="reasoning_effort", takes=["top_k"])
    assert (wire["additionalModelRequestFields"], lost) == ({"top_k": 5, "reasoning_effort": "low"}, set())
    assert told(chat, google)[0]["generationConfig"]["topK"] == 5


def test_previews_reach_anthropic_and_are_told_elsewhere_by_the_clients_name() -> None:
    chat = chat_of(model_fields={"anthropic_beta": ["a-1"]})
    assert told(chat, anthropic)[1] == set()
    assert anthropic.headers(chat, Target(model_name="m", facts={}))["anthropic-beta"] == "a-1"
    assert told(chat, openai)[1] == {"additionalModelRequestFields.anthropic_beta"}
    assert told(chat, bedrock)[1] == {"additionalModelRequestFields.anthropic_beta"}
    assert told(chat, bedrock, betas=["a-1"])[0]["additionalModelRequestFields"] == {"anthropic_beta": ["a-1"]}


def test_anthropics_own_choice_of_tools_is_read() -> None:
    tools = {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]}
    native = {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    chat = chat_of(toolConfig=tools, model_fields=native)
    assert (chat.tool_choice, chat.parallel_tool_calls) == (ToolChoice(mode="auto"), False)
    assert told(chat, openai)[0]["parallel_tool_calls"] is False


def test_an_object_that_a_tool_answered_with_is_one_at_bedrock_and_json_elsewhere() -> None:
    call = {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a", "name": "f", "input": {}}}]}
    result = {"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content": [{"json": {"sky": "clear"}}]}}]}
    chat = chat_of(call, result)
    wire, lost = told(chat, google)
    assert wire["contents"][-1]["parts"][0]["functionResponse"]["response"] == {"output": '{"sky":"clear"}'}
    assert told(chat, bedrock)[0]["messages"][-1] == result
    assert lost == set()


def test_search_results_are_text_for_others() -> None:
    found = {"source": "https://example.com", "title": "Oslo", "content": [{"text": "A town."}]}
    chat = chat_of({"role": "user", "content": [{"searchResult": {**found, "citations": {"enabled": True}}}]})
    wire, lost = told(chat, openai)
    assert "Oslo\\nhttps://example.com\\nA town." in json.dumps(wire)
    assert lost == {"messages.content.citations"}


@pytest.mark.parametrize(
    "block",
    [
        ReasoningDelta(text="Hm.", signature="s", format="google-gemini-v1", id="r1"),
        ReasoningDelta(data="encrypted", format="openai-responses-v1@openai", id="r2"),
        ReasoningDelta(text="Hm.", signature="EqoB", format="anthropic-claude-v1"),
        ReasoningDelta(data="EmwK", format="anthropic-claude-v1"),
    ],
)
def test_thinking_of_every_maker_comes_back_as_it_was(block: ReasoningDelta) -> None:
    reply = Reply(choices=[Choice(text="So.", reasoning=[block], finish="stop")])
    whole = json.loads(bedrock.write_reply(reply, SUMMARY, CHAT))["output"]["message"]
    frames = aws_event_frames([b"".join(bedrock.write_events([*unfold(reply), SUMMARY], CHAT))])
    again = json.loads(bedrock.write_reply(fold(bedrock.read_events(frames)), SUMMARY, CHAT))["output"]["message"]
    for message in (whole, again):
        chat = chat_of(message)
        [thought] = [part for part in chat.messages[1].parts if isinstance(part, Reasoning)]
        assert (thought.text, thought.signature, thought.data, thought.format, thought.id) == (
            *(block.text, block.signature, block.data),
            *(block.format, block.id),
        )
        # A conversation with thinking of others has to be written.
        assert (chat.source is None) == (block.format != "anthropic-claude-v1")


def test_hidden_thinking_is_not_shown() -> None:
    chat = chat_of(model_fields={"thinking": {"type": "enabled", "budget_tokens": 9, "display": "omitted"}})
    events = [Started(), ReasoningDelta(text="Hm."), TextDelta(text="So."), Finished(reason="stop"), SUMMARY]
    reply = fold(events[:-1])
    assert b"Hm." not in bedrock.write_reply(reply, SUMMARY, chat)
    assert b"Hm." not in b"".join(bedrock.write_events(events, chat))


def test_calls_that_come_at_once_are_written_one_after_the_other() -> None:
    events = streamed(
        ToolCallStarted(index=0, id="a", name="f"),
        ToolCallStarted(index=1, id="b", name="g"),
        ToolCallDelta(index=1, arguments='{"x": 1}'),
        ToolCallDelta(index=0, arguments='{"y": 2}'),
        Finished(reason="tool_calls"),
    )
    assert [(kind, content.get("contentBlockIndex")) for kind, content in events] == [
        ("messageStart", None),
        *(("contentBlockStart", 0), ("contentBlockDelta", 0), ("contentBlockStop", 0)),
        *(("contentBlockStart", 1), ("contentBlockDelta", 1), ("contentBlockStop", 1)),
        *(("messageStop", None), ("metadata", None)),
    ]
    assert events[2][1]["delta"] == {"toolUse": {"input": '{"y": 2}'}}


def test_a_call_without_arguments_has_an_empty_object() -> None:
    events = streamed(ToolCallStarted(index=0, id="a", name="f"), Finished(reason="tool_calls"))
    deltas = [content["delta"] for kind, content in events if kind == "contentBlockDelta"]
    assert deltas == [{"toolUse": {"input": "{}"}}]


def test_a_sign_of_life_is_an_event_that_clients_skip() -> None:
    events = streamed(Waiting(), TextDelta(text="a"), Waiting(), Finished(reason="stop"))
    assert [kind for kind, _ in events][:4] == ["ping", "messageStart", "contentBlockDelta", "ping"]


def test_pages_are_cited_behind_the_text_and_documents_with_it() -> None:
    page = {"url": "https://example.com/a", "title": "A page", "start_index": 0, "end_index": 2}
    web = {"type": "url_citation", "url_citation": page}
    place = {"document_index": 0, "document_title": "Map", "start_page_number": 1, "end_page_number": 2}
    document = {"type": "page_location", "cited_text": "m", **place}

    def content(*notes: Any) -> Any:
        events = [Started(), TextDelta(text="So it is."), *(Annotated(annotation=note) for note in notes)]
        reply = fold([*events, Finished(reason="stop")])
        return json.loads(bedrock.write_reply(reply, SUMMARY, CHAT))["output"]["message"]["content"]

    location = {"location": {"web": {"url": "https://example.com/a", "domain": "example.com"}}}
    of_page = {"title": "A page", "sourceContent": [{"text": "So"}], **location}
    of_document = {
        "title": "Map",
        "sourceContent": [{"text": "m"}],
        "location": {"documentPage": {"documentIndex": 0, "start": 1, "end": 2}},
    }
    assert content(web) == [{"text": "So it is."}, {"citationsContent": {"content": [], "citations": [of_page]}}]
    assert content(document, web) == [
        {"citationsContent": {"content": [{"text": "So it is."}], "citations": [of_document, of_page]}}
    ]
    deltas = [
        content["delta"]
        for kind, content in streamed(TextDelta(text="So it is."), Annotated(annotation=web), Finished(reason="stop"))
        if kind == "contentBlockDelta"
    ]
    assert deltas == [{"text": "So it is."}, {"citation": of_page}]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (AllProvidersFailed("no"), "modelStreamErrorException"),
        (RateLimited("no"), "throttlingException"),
        (Overloaded("no"), "serviceUnavailableException"),
        (UpstreamRefused("no", status=400), "validationException"),
        (ApiError("no", status=500), "internalServerException"),
    ],
)
def test_a_failure_in_a_stream_is_an_exception_of_converse(error: ApiError, kind: str) -> None:
    events = streamed(TextDelta(text="a"), Failed(error=error))
    assert [events[-1][0], events[-1][1]["message"]] == [f"!{kind}", "no"]


def test_errors_have_the_statuses_of_aws_and_keep_what_else_is_said() -> None:
    error = bedrock.error_for_clients(AllProvidersFailed("no", retry_after=3.0, headers=[("a", "b")]))
    assert (error.status, error.retry_after, error.type, error.code) == (
        424,
        3.0,
        "upstream_error",
        "all_providers_failed",
    )
    assert error.headers == [("a", "b"), ("x-amzn-ErrorType", "ModelErrorException")]
    assert bedrock.error_for_clients(Unauthenticated("no")).headers == [("x-amzn-ErrorType", "AccessDeniedException")]


def test_a_prompt_that_is_too_long_is_told_in_the_words_that_agents_look_for() -> None:
    error = UpstreamRefused("maximum context length is 9", status=400, code="context_length_exceeded")
    words = "Input is too long for requested model: maximum context length is 9"
    assert json.loads(bedrock.write_error(error))["message"] == words
    assert json.loads(bedrock.write_error(UpstreamRefused(words, code="context_length_exceeded")))["message"] == words


def test_redacted_thinking_is_no_text_to_look_through() -> None:
    redacted = {"reasoningContent": {"redactedContent": b64encode(b"EmwKAhgBEgy3va3p").decode()}}
    chat = chat_of({"role": "assistant", "content": [redacted, {"text": "So."}]})
    assert [text.text for text in ChatTexts(chat).texts] == ["?", "So."]


def test_the_log_has_the_conversation_in_the_clients_form_also_where_it_was_changed() -> None:
    tools = {
        "tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}],
        "toolChoice": {"any": {}},
    }
    chat = chat_of(system=[{"text": "Be brief."}], toolConfig=tools)
    for asked in (chat, replace(chat, source=None)):
        logged = json.loads(openai.wire.encode(bedrock.logged_request(asked)))
        assert logged == {
            "messages": [{"role": "system", "content": [{"text": "Be brief."}]}, USER],
            "tools": tools["tools"],
            "tool_choice": {"any": {}},
        }
    assert bedrock.logged_choice(ToolChoice(mode="named", name="f"), None) == {"tool": {"name": "f"}}
