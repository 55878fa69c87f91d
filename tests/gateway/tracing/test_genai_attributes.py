"""Every attribute of the GenAI conventions: told with an exact value, or left out for a reason that is written here."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans

from apps.gateway.canonical.chat import Chat, FunctionTool, Message, ResponseFormat, Text
from apps.gateway.canonical.events import Started
from apps.gateway.canonical.task_options import Embedding
from apps.gateway.tracing import tracer
from apps.gateway.tracing.genai_attributes import answer_of, describe
from apps.gateway.tracing.request_trace import Callee, RequestTrace
from apps.gateway.tracing.tracer import encode_trace
from apps.logs.entry import Entry
from gateway_project.configuration.telemetry_settings import TelemetrySettings
from tests.support.otlp_collector import values_of

LOG_ID = UUID("01a2210c-0c57-7766-b622-bc530a774bad")
MESSAGES = [{"role": "user", "parts": [{"type": "text", "content": "Hello"}]}]
ANSWER = [{"role": "assistant", "parts": [{"type": "text", "content": "Hi"}], "finish_reason": "stop"}]
DEFINITIONS = [{"type": "function", "name": "look_up", "parameters": {"type": "object"}}]
# The attributes of a chat with everything in it, by name.
TOLD: dict[str, Any] = {
    "gen_ai.conversation.id": "conv_1",
    "gen_ai.input.messages": MESSAGES,
    "gen_ai.operation.name": "chat",
    "gen_ai.output.messages": ANSWER,
    "gen_ai.output.type": "json",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.choice.count": 2,
    "gen_ai.request.frequency_penalty": 0.25,
    "gen_ai.request.max_tokens": 100,
    "gen_ai.request.model": "gpt-5",
    "gen_ai.request.presence_penalty": 0.5,
    "gen_ai.request.reasoning.level": "low",
    "gen_ai.request.seed": 7,
    "gen_ai.request.stop_sequences": ["END", "STOP"],
    "gen_ai.request.stream": True,
    "gen_ai.request.temperature": 0.75,
    "gen_ai.request.top_k": 40,
    "gen_ai.request.top_p": 0.125,
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.response.id": "chatcmpl-1",
    "gen_ai.response.model": "gpt-5-2026-08-07",
    "gen_ai.response.time_to_first_chunk": 1.25,
    "gen_ai.tool.definitions": DEFINITIONS,
    "gen_ai.usage.cache_creation.input_tokens": 3,
    "gen_ai.usage.cache_read.input_tokens": 4,
    "gen_ai.usage.input_tokens": 20,
    "gen_ai.usage.output_tokens": 30,
    "gen_ai.usage.reasoning.output_tokens": 5,
    "openai.request.service_tier": "auto",
    "openai.response.service_tier": "flex",
    "openai.response.system_fingerprint": "fp_1",
}
# Attributes that only requests for vectors have.
OF_EMBEDDINGS: dict[str, Any] = {
    "gen_ai.embeddings.dimension.count": 512,
    "gen_ai.request.encoding_formats": ["base64"],
}
_AGENTS = "the gateway runs no agents: its spans are calls of models"
_EVALUATIONS = "the gateway evaluates no answers"
_TOOLS = "a call of a tool is a row of the log and no span of a model"
_METRICS = "an attribute of metrics alone"
_MODALITIES = "the record counts tokens by price, not by modality"
ABSENT = {
    "gen_ai.agent.description": _AGENTS,
    "gen_ai.agent.id": _AGENTS,
    "gen_ai.agent.name": _AGENTS,
    "gen_ai.agent.version": _AGENTS,
    "gen_ai.data_source.id": "providers name no data sources in their answers",
    "gen_ai.evaluation.explanation": _EVALUATIONS,
    "gen_ai.evaluation.name": _EVALUATIONS,
    "gen_ai.evaluation.score.label": _EVALUATIONS,
    "gen_ai.evaluation.score.value": _EVALUATIONS,
    "gen_ai.prompt.name": "prompt templates of providers are not told from other fields",
    "gen_ai.retrieval.documents": "retrieval is no operation of the gateway",
    "gen_ai.retrieval.query.text": "retrieval is no operation of the gateway",
    "gen_ai.system_instructions": "the canonical chat has instructions as its first message: gen_ai.input.messages",
    "gen_ai.token.type": _METRICS,
    "gen_ai.tool.call.arguments": _TOOLS,
    "gen_ai.tool.call.id": _TOOLS,
    "gen_ai.tool.call.result": _TOOLS,
    "gen_ai.tool.description": _TOOLS,
    "gen_ai.tool.name": _TOOLS,
    "gen_ai.tool.type": _TOOLS,
    "gen_ai.usage.audio.input_tokens": _MODALITIES,
    "gen_ai.usage.audio.output_tokens": _MODALITIES,
    "gen_ai.usage.image.input_tokens": _MODALITIES,
    "gen_ai.usage.text.input_tokens": _MODALITIES,
    "gen_ai.usage.text.output_tokens": _MODALITIES,
    "gen_ai.usage.video.input_tokens": _MODALITIES,
    "gen_ai.workflow.name": _AGENTS,
    "openai.api.type": "the record's route says it",
}
_JSON = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.definitions")


class Call:
    """A call of a provider that was answered with 200."""

    status = 200
    trace_headers: Any = None


def chat(**fields: Any) -> Chat:
    return Chat(model="gpt-5", messages=[Message(role="user", parts=[Text(text="Hello")])], **fields)


FULL = {
    "stream": True,
    "seed": 7,
    "stop": ["END", "STOP"],
    "top_k": 40,
    "n": 2,
    "service_tier": "auto",
    "response_format": ResponseFormat(kind="json_schema"),
    "tools": [FunctionTool(name="look_up", parameters={"type": "object"})],
}


def entry(retention: str = "retain", **columns: Any) -> Entry:
    return Entry(
        id=LOG_ID,
        request_id="r-1",
        organization_id=LOG_ID,
        project_id=LOG_ID,
        api_key_id=LOG_ID,
        route="chat_completions",
        requested_model="gpt-5",
        used_model="gpt-5",
        used_provider="openai",
        underlying_model="gpt-5",
        mode="live",
        status_code=200,
        cost=Decimal("0.5"),
        content="Hi",
        finish_reason="stop",
        prompt_tokens=20,
        completion_tokens=30,
        cached_tokens=4,
        cache_write_tokens=3,
        reasoning_tokens=5,
        temperature=0.75,
        top_p=0.125,
        max_tokens=100,
        frequency_penalty=0.25,
        presence_penalty=0.5,
        reasoning_effort="low",
        retention_level=retention,
        **columns,
    )


def attributes_of(
    settings: Any, asked: Chat, record: Entry, *, provider: str = "openai", content: bool = True
) -> dict[str, Any]:
    """Return the attributes of the span of the provider's call, as a collector reads them."""
    settings.TELEMETRY = TelemetrySettings(endpoint="http://127.0.0.1:1", traces=True, content=content)
    ended: list[RequestTrace] = []
    trace = RequestTrace.begin("POST /v1/chat/completions", 1000.0, None, ended.append)
    attempt = trace.begin_attempt(Callee(provider, "gpt-5", "https://api.openai.com/v1"))
    list(attempt.traced(Call(), iter([1])))
    trace.calls[0].start = 1000.5
    trace.conversation_id = "conv_1"
    trace.answer = answer_of(
        Started(id="chatcmpl-1", model="gpt-5-2026-08-07", extra={"openai": {"system_fingerprint": "fp_1"}})
    )
    tracer.end_trace(trace, record, asked, 1001.0, "flex")
    describe(trace)
    spans = ScopeSpans.FromString(encode_trace(ended[0])).spans
    [span] = [one for one in spans if one.name.endswith(" gpt-5")]
    found = values_of(span.attributes)
    return {name: json.loads(value) if name in _JSON else value for name, value in found.items()}


def named(found: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of the conventions for generative AI."""
    return {name: value for name, value in found.items() if name.startswith(("gen_ai.", "openai."))}


def test_a_chat_tells_every_attribute_that_it_has(settings: Any) -> None:
    found = attributes_of(settings, chat(**FULL), entry(streamed=True, time_to_first_token=1750))
    assert named(found) == TOLD
    assert (found["server.address"], found["server.port"]) == ("api.openai.com", 443)


def test_vectors_have_attributes_of_their_own(settings: Any) -> None:
    wanted = chat(task="embeddings", embedding=Embedding(dimensions=512, base64=True))
    found = attributes_of(settings, wanted, entry("metadata"))
    assert {name: found.get(name) for name in OF_EMBEDDINGS} == OF_EMBEDDINGS
    assert found["gen_ai.operation.name"] == "embeddings"


def test_no_attribute_is_both_told_and_left_out() -> None:
    assert not ABSENT.keys() & (TOLD.keys() | OF_EMBEDDINGS.keys())
    # The number of the conventions' attributes, by their registry: `gen_ai.*` and `openai.*`.
    assert len(ABSENT) + len(TOLD) + len(OF_EMBEDDINGS) == 61


@pytest.mark.parametrize(
    ("retention", "content", "left_out"),
    [
        ("retain", False, {*_JSON}),
        ("metadata", True, {*_JSON, "gen_ai.request.stop_sequences"}),
        (
            "none",
            True,
            {
                *_JSON,
                "gen_ai.conversation.id",
                *(name for name in TOLD if name.startswith("gen_ai.request.")),
            }
            - {"gen_ai.request.model", "gen_ai.request.stream"},
        ),
    ],
)
def test_retention_and_the_deployment_decide_what_is_told_of_a_request(
    settings: Any, retention: str, content: bool, left_out: set[str]
) -> None:
    record = entry(retention, streamed=True, time_to_first_token=1750)
    found = named(attributes_of(settings, chat(**FULL), record, content=content))
    assert found == {name: value for name, value in TOLD.items() if name not in left_out}


def test_attributes_of_openai_are_told_of_openai_alone(settings: Any) -> None:
    found = named(attributes_of(settings, chat(**FULL), entry(), provider="groq"))
    assert not [name for name in found if name.startswith("openai.")]
    assert found["gen_ai.response.id"] == "chatcmpl-1"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, None),
        ({"response_format": ResponseFormat(kind="text")}, "text"),
        ({"response_format": ResponseFormat(kind="json_object")}, "json"),
        ({"modalities": ["text", "audio"]}, "speech"),
        ({"modalities": ["text", "image"]}, "image"),
        ({"task": "images"}, "image"),
        ({"task": "transcription"}, "text"),
    ],
)
def test_the_kind_of_output_is_told_where_the_request_says_it(
    settings: Any, fields: dict[str, Any], told: str | None
) -> None:
    assert attributes_of(settings, chat(**fields), entry()).get("gen_ai.output.type") == told


def test_an_answer_without_an_id_has_none(settings: Any) -> None:
    assert answer_of(Started(model="m")).id == ""
