"""Real traffic before clients of other formats: what a provider said comes out the same in OpenAI's Responses format,
in Ollama's, in Cohere's and in Bedrock's, for every maker, and in Anthropic's for Google's and Cohere's models; in
types that the makers' own clients take.

The recordings are not part of the project; without them these tests are skipped. Other pairs of formats are tested with
each format's own recordings.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from itertools import chain
from typing import Any

import botocore.session
import pytest
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from botocore.validate import ParamValidator
from cohere.v2.types import V2ChatResponse, V2ChatStreamResponse
from ollama import ChatResponse
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from apps.gateway.canonical.chat import Reasoning
from apps.gateway.canonical.events import Choice, Event, Failed, Reply, Summary, fold
from apps.gateway.dialects.chat import anthropic, bedrock, cohere, ollama, responses
from apps.gateway.dialects.chat.openai.wire import encode
from apps.gateway.dialects.chat.responses.client import Asked
from apps.gateway.dialects.chat.responses.client.read_request import read_wire
from apps.gateway.dialects.chat.responses.client.write_reply import response_of
from apps.gateway.framing import aws_event_frames, sse_frames
from apps.kernel.usage import Usage
from tests.gateway.dialects.chat.anthropic import test_recordings_anthropic as anthropics
from tests.gateway.dialects.chat.bedrock import test_recordings_bedrock as bedrocks
from tests.gateway.dialects.chat.cohere import test_recordings_cohere as coheres
from tests.gateway.dialects.chat.google import test_recordings_google as googles
from tests.gateway.dialects.chat.openai import test_recordings_openai as openais
from tests.support.anthropic_stream import assert_in_order
from tests.support.aws_event_frames import lines_of
from tests.support.unfolding import unfold

RECORDINGS = openais.RECORDINGS
RESPONSE_EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
MESSAGE_EVENTS: TypeAdapter[Any] = TypeAdapter(BetaRawMessageStreamEvent)
CHAT_EVENTS: TypeAdapter[Any] = TypeAdapter(V2ChatStreamResponse)
COHERES = cohere.CLIENT.read_request(b'{"model": "m", "messages": [{"role": "user", "content": "?"}]}')
ANTHROPICS = anthropic.read_request(b'{"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "?"}]}')
# By provider's format, where its recordings are read, and what tells their hosts apart.
SOURCES: dict[str, tuple[Any, list[tuple[str, ...]]]] = {
    "anthropic": (anthropics, [()]),
    "bedrock": (bedrocks, [()]),
    "google": (googles, [(host,) for host in googles.HOSTS]),
    "openai": (openais, [(host,) for host in openais.HOSTS]),
}

pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason="there are no recordings in ../shared/recordings")


# How many answers there are, and in how many of them the model thinks, calls and searches.
COUNTS = {
    "anthropic": {"all": 199, "thinking": 21, "calls": 76, "searches": 8},
    "bedrock": {"all": 137, "thinking": 16, "calls": 57, "searches": 0},
    "cohere": {"all": 4, "thinking": 2, "calls": 1, "searches": 0},
    "google": {"all": 322, "thinking": 76, "calls": 171, "searches": 6},
    "openai": {"all": 327, "thinking": 46, "calls": 128, "searches": 1},
}


class Cipher:
    """Encrypts nothing, but changes what it is given."""

    def encrypt(self, content: bytes) -> str:
        return base64.b64encode(content).decode()

    def decrypt(self, text: str) -> bytes:
        return base64.b64decode(text)


ASKED = Asked(cipher=Cipher())
RESPONSES = read_wire({"model": "m", "input": "?"}, b"{}", ASKED)


def answers_of(provider: str) -> Iterator[tuple[str, list[Event]]]:
    """Yield the name and the events of every recorded answer in a provider's format that is one."""
    if provider == "cohere":
        # They are all plain: a stream of what they say.
        for exchange in coheres.exchanges():
            yield exchange["name"], list(unfold(fold(cohere.read_reply(json.dumps(exchange["json"]).encode()))))
        return
    module, hosts = SOURCES[provider]
    exchanges = chain.from_iterable(module.exchanges(*host) for host in hosts)
    for exchange in exchanges:
        if exchange["status"] == 200:
            events = module.events_of(exchange)
            if not isinstance(events[-1], Failed):
                yield exchange["name"], events


def said_by(choice: Choice) -> dict[str, Any]:
    """Return what an answer says that every format has words for; pictures by address are words in some."""
    by_address = "".join(f"![image]({url})" for url in choice.images if not url.startswith("data:"))
    transcript = choice.audio.transcript if choice.audio is not None else ""
    return {
        "text": (choice.text or "") + by_address,
        "sound": transcript,
        "refusal": choice.refusal or "",
        "calls": [(call.id, call.name, meaning_of(call.arguments)) for call in choice.tool_calls],
        "finish": choice.finish,
        "cited": [note["url_citation"]["url"] for note in choice.annotations if note.get("type") == "url_citation"],
    }


def meaning_of(arguments: str) -> Any:
    """Return a call's arguments; nothing is the same as no arguments."""
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def summary_of(reply: Reply) -> Summary:
    """Return the gateway's last word on an answer: what its provider counted."""
    return Summary(
        usage=reply.usage or Usage(), cost={"total": Decimal("0.0000012")}, metadata={"used_model": "the-model"}
    )


def assert_counted(read: Reply, reply: Reply) -> None:
    """Check that a client reads the provider's counts as its usage."""
    counted, usage = read.usage, reply.usage or Usage()
    assert counted is not None
    assert (counted.prompt_tokens, counted.completion_tokens) == (usage.prompt_tokens, usage.completion_tokens)
    assert counted.cache_read == usage.cache_read


@pytest.mark.parametrize("provider", ["anthropic", "bedrock", "cohere", "google", "openai"])
def test_an_answer_says_the_same_to_clients_of_the_responses_format(provider: str) -> None:
    counts: Counter[str] = Counter()
    for name, events in answers_of(provider):
        reply = fold(list(events))
        summary, choice = summary_of(reply), reply.choices[0]
        plain = json.loads(encode(response_of([*events, summary], RESPONSES)))
        written = list(sse_frames(responses.write_events([*events, summary], RESPONSES)))
        told = [json.loads(data) for data in written]
        Response.model_validate(plain)
        for event in told:
            RESPONSE_EVENTS.validate_python(event)
        assert_numbered(told)
        # The items get new ids.
        assert without_ids(told[-1]["response"]["output"]) == without_ids(plain["output"]), name
        for read in (fold(responses.read_reply(encode(plain))), fold(responses.read_events(written))):
            again, said = said_by(read.choices[0]), said_by(choice)
            # This format has no sound, and says why a filter ended the answer in a refusal.
            refusal = said["refusal"] or choice.explanation or ""
            assert again == {**said, "sound": "", "refusal": refusal}, name
            assert_counted(read, reply)
        searches = [item["action"].get("query", "") for item in plain["output"] if item["type"] == "web_search_call"]
        assert searches == choice.searches, name
        check_thinking(name, plain, choice)
        counts.update(thinking=bool(choice.reasoning), calls=bool(choice.tool_calls), searches=bool(searches), all=1)
    assert counts == COUNTS[provider]


def assert_numbered(told: list[dict[str, Any]]) -> None:
    """Events are numbered; each item is announced once, in its place, and is over once."""
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    for word in ("added", "done"):
        places = [event["output_index"] for event in told if event["type"] == f"response.output_item.{word}"]
        assert sorted(places) == list(range(len(told[-1]["response"]["output"])))
    said: dict[tuple[int, int], str] = {}
    for event in told:
        if event["type"] == "response.output_text.delta":
            place = (event["output_index"], event["content_index"])
            said[place] = said.get(place, "") + event["delta"]
    whole = {
        (index, number): part["text"]
        for index, item in enumerate(told[-1]["response"]["output"])
        for number, part in enumerate(item["content"] if item["type"] == "message" else ())
        if part["type"] == "output_text" and part["text"]
    }
    assert said == whole


def without_ids(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in item.items() if name != "id"} for item in output]


def check_thinking(name: str, plain: dict[str, Any], choice: Choice) -> None:
    """A client that sends the answer back as input brings the thinking as its maker gave it: signed, and in order."""
    body = encode({"model": "m", "input": plain["output"] or "?"})
    chat = read_wire(json.loads(body), body, ASKED)
    brought = [part for message in chat.messages for part in message.parts if isinstance(part, Reasoning)]
    signed = [block for block in choice.reasoning if block.signature or block.data]
    kept = [block for block in brought if block.signature or block.data]
    assert [(block.text, block.signature, block.data, block.format) for block in kept] == [
        (block.text, block.signature, block.data, block.format) for block in signed
    ], name
    assert "".join(block.text for block in brought) == "".join(block.text for block in choice.reasoning), name


@pytest.mark.parametrize("provider", ["cohere", "google"])
def test_an_answer_says_the_same_to_clients_of_anthropics_format(provider: str) -> None:
    count = 0
    for name, events in answers_of(provider):
        reply = fold(list(events))
        summary, choice = summary_of(reply), reply.choices[0]
        plain = anthropic.write_reply(reply, summary, ANTHROPICS)
        written = list(sse_frames(anthropic.write_events([*events, summary], ANTHROPICS)))
        BetaMessage.model_validate(json.loads(plain))
        told = [json.loads(data) for data in written]
        for event in told:
            MESSAGE_EVENTS.validate_python(event)
        assert_in_order(told)
        for read in (fold(anthropic.read_reply(plain)), fold(anthropic.read_events(written))):
            again, said = said_by(read.choices[0]), said_by(choice)
            assert again["text"] == said["text"] + said["refusal"] + said["sound"], name
            assert (again["calls"], again["cited"]) == (said["calls"], said["cited"]), name
            assert again["finish"] == said["finish"], name
            assert_counted(read, reply)
        count += 1
    assert count == COUNTS[provider]["all"]


OLLAMAS = ollama.read_request(b'{"model": "m", "messages": [{"role": "user", "content": "?"}]}')


@pytest.mark.parametrize("provider", ["anthropic", "bedrock", "cohere", "google", "openai"])
def test_an_answer_says_the_same_to_clients_of_ollamas_format(provider: str) -> None:
    counts: Counter[str] = Counter()
    for name, events in answers_of(provider):
        reply = fold(list(events))
        summary, choice = summary_of(reply), reply.choices[0]
        plain = ChatResponse.model_validate_json(ollama.write_reply(reply, summary, OLLAMAS))
        lines = b"".join(ollama.write_events([*events, summary], OLLAMAS)).decode().split("\n")
        assert lines.pop() == ""
        told = [ChatResponse.model_validate_json(line) for line in lines]
        assert [line.done for line in told] == [False] * (len(told) - 1) + [True], name
        said = said_by(choice)
        thought = "".join(block.text for block in choice.reasoning)
        for answer in ([plain], told):
            messages = [line.message for line in answer]
            text = "".join(message.content or "" for message in messages)
            expected = [said["text"], said["sound"], said["refusal"] or choice.explanation or ""]
            # Streamed words of different kinds come in the order in which they were said.
            assert sorted(text) == sorted("".join(expected)), name
            assert said["text"] in text or choice.images, name
            assert "".join(message.thinking or "" for message in messages) == thought, name
            calls = [call.function for message in messages for call in message.tool_calls or ()]
            assert [call.name for call in calls] == [called for _, called, _ in said["calls"]], name
            for call, (_, _, arguments) in zip(calls, said["calls"], strict=True):
                assert call.arguments == (arguments if isinstance(arguments, dict) else {"input": arguments}), name
            assert answer[-1].done_reason == {"tool_calls": "stop"}.get(said["finish"], said["finish"]), name
            usage = reply.usage or Usage()
            counted = (answer[-1].prompt_eval_count, answer[-1].eval_count)
            assert counted == (usage.prompt_tokens, usage.completion_tokens), name
        counts.update(thinking=bool(choice.reasoning), calls=bool(choice.tool_calls), all=1)
    assert counts == {name: count for name, count in COUNTS[provider].items() if name != "searches"}


@pytest.mark.parametrize("provider", ["anthropic", "bedrock", "cohere", "google", "openai"])
def test_an_answer_says_the_same_to_clients_of_coheres_format(provider: str) -> None:
    count = 0
    for name, events in answers_of(provider):
        reply = fold(list(events))
        summary, choice = summary_of(reply), reply.choices[0]
        plain = cohere.CLIENT.write_reply(reply, summary, COHERES)
        written = list(sse_frames(cohere.CLIENT.write_events([*events, summary], COHERES)))
        V2ChatResponse.model_validate(json.loads(plain))
        for data in written[:-1]:
            CHAT_EVENTS.validate_python(json.loads(data))
        assert written[-1] == b"[DONE]"
        assert_parts_end(list(map(json.loads, written[:-1])))
        for read in (fold(cohere.read_reply(plain)), fold(cohere.read_events(written))):
            again, said = said_by(read.choices[0]), said_by(choice)
            assert again["text"] == said["text"] + said["refusal"] + said["sound"], name
            assert (again["calls"], again["cited"]) == (said["calls"], said["cited"]), name
            assert again["finish"] == said["finish"], name
            thoughts = "".join(block.text for block in choice.reasoning)
            assert "".join(block.text for block in read.choices[0].reasoning) == thoughts, name
            if reply.usage is not None:
                assert_counted(read, reply)
        count += 1
    assert count == COUNTS[provider]["all"]


def assert_parts_end(told: list[dict[str, Any]]) -> None:
    """A message begins and ends once; parts of the content, calls and citations begin in order, and each ends once."""
    kinds = [event["type"] for event in told]
    assert (kinds[0], kinds[-1]) == ("message-start", "message-end")
    for kind in ("content", "tool-call", "citation"):
        starts = [event["index"] for event in told if event["type"] == f"{kind}-start"]
        ends = [event["index"] for event in told if event["type"] == f"{kind}-end"]
        assert starts == ends == list(range(len(starts)))


BEDROCKS = bedrock.read_request(b'{"messages": [{"role": "user", "content": [{"text": "?"}]}]}')
CONVERSE: Any = botocore.session.get_session().get_service_model("bedrock-runtime").operation_model("ConverseStream")


@pytest.mark.parametrize("provider", ["anthropic", "bedrock", "cohere", "google", "openai"])
def test_an_answer_says_the_same_to_clients_of_bedrocks_format(provider: str) -> None:
    count = 0
    for name, events in answers_of(provider):
        reply = fold(list(events))
        summary, choice = summary_of(reply), reply.choices[0]
        plain = bedrock.write_reply(reply, summary, BEDROCKS)
        streamed = b"".join(bedrock.write_events([*events, summary], BEDROCKS))
        assert_typed(lines_of(streamed))
        for read in (
            fold(bedrock.read_reply(plain)),
            fold(bedrock.read_events(aws_event_frames([streamed]))),
        ):
            again, said = said_by(read.choices[0]), said_by(choice)
            # Streamed words of different kinds come in the order in which they were said.
            expected = said["text"] + said["refusal"] + said["sound"]
            assert sorted(again["text"]) == sorted(expected), name
            assert (again["calls"], again["cited"]) == (objects_of(said["calls"]), said["cited"]), name
            assert again["finish"] == said["finish"], name
            thoughts = "".join(block.text for block in choice.reasoning)
            assert "".join(block.text for block in read.choices[0].reasoning) == thoughts, name
            if reply.usage is not None:
                assert_counted(read, reply)
        check_returned_thinking(name, json.loads(plain)["output"]["message"], choice)
        count += 1
    assert count == COUNTS[provider]["all"]


def objects_of(calls: list[tuple[str, str, Any]]) -> list[tuple[str, str, Any]]:
    """Return calls with arguments as the format has them: those that are no object are in one."""
    return [(it, name, given if isinstance(given, dict) else {"arguments": given}) for it, name, given in calls]


def assert_typed(lines: list[str]) -> None:
    """Check that AWS's own types take each event of a stream, whose blocks come one after the other."""
    shapes = CONVERSE.output_shape.members["stream"].members
    ended = 0
    for line in lines:
        kind, _, payload = line.partition(" ")
        event = json.loads(payload)
        event.pop("gateway", None)
        report = ParamValidator().validate(event, shapes[kind])
        assert not report.has_errors(), report.generate_report()
        if "contentBlockIndex" in event:
            assert event["contentBlockIndex"] == ended
            ended += kind == "contentBlockStop"


def check_returned_thinking(name: str, message: dict[str, Any], choice: Choice) -> None:
    """A client that sends the answer back brings the thinking as its maker gave it: signed, and in order."""
    chat = bedrock.read_request(encode({"messages": [message]}))
    brought = [part for one in chat.messages for part in one.parts if isinstance(part, Reasoning)]
    signed = [block for block in choice.reasoning if block.signature or block.data]
    kept = [block for block in brought if block.signature or block.data]
    assert [(block.text, block.signature, block.data, block.format, block.id) for block in kept] == [
        (block.text, block.signature, block.data, block.format, block.id) for block in signed
    ], name
