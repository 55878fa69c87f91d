"""Real traffic before Google's clients: Gemini's answers come out as they came in, other makers' satisfy Google's
types, and requests reach Gemini as they were sent. The recordings are not part of the project; without them these
tests are skipped."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from google.genai import types

from apps.gateway.canonical.chat import Target
from apps.gateway.canonical.events import Event, Failed, Started, fold
from apps.gateway.dialects.chat import cohere, google, vertex
from apps.gateway.dialects.chat.google.client import camel_cased
from apps.gateway.dialects.chat.google.client.write_reply import write_array
from apps.gateway.framing import sse_frames
from tests.gateway.dialects.chat.anthropic.test_recordings_anthropic import events_of as anthropic_events
from tests.gateway.dialects.chat.anthropic.test_recordings_anthropic import exchanges as anthropic_exchanges
from tests.gateway.dialects.chat.bedrock.test_recordings_bedrock import events_of as bedrock_events
from tests.gateway.dialects.chat.bedrock.test_recordings_bedrock import exchanges as bedrock_exchanges
from tests.gateway.dialects.chat.cohere.test_recordings_cohere import exchanges as cohere_exchanges
from tests.gateway.dialects.chat.google.test_recordings_google import (
    FAILURE_WORDS,
    HOSTS,
    RECORDINGS,
    SUMMARY,
    chunks_of,
    events_of,
    exchanges,
)
from tests.gateway.dialects.chat.openai.test_recordings_openai import HOSTS as OPENAI_HOSTS
from tests.gateway.dialects.chat.openai.test_recordings_openai import events_of as openai_events
from tests.gateway.dialects.chat.openai.test_recordings_openai import exchanges as openai_exchanges
from tests.gateway.dialects.chat.responses.test_recordings_responses import HOSTS as RESPONSES_HOSTS
from tests.gateway.dialects.chat.responses.test_recordings_responses import events_of as responses_events
from tests.gateway.dialects.chat.responses.test_recordings_responses import exchanges as responses_exchanges

pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason="there are no recordings in ../shared/recordings")

CLIENT = google.read_request(
    b'{"contents": [{"parts": [{"text": "?"}]}], "generationConfig": {"thinkingConfig": {"includeThoughts": true}}}',
    "the-model",
    stream=True,
)
MADE_UP = re.compile("call_[0-9a-f]{24}")
# Models that take whatever was recorded.
LENIENT = {"reasoning_budget": {"min": 0}, "takes": ["search_with_tools"]}


def candidates_of(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the candidates of an answer, the parts of a stream put together: texts of a kind become one."""
    whole: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for position, candidate in enumerate(chunk.get("candidates", [])):
            said = {**candidate, "index": candidate.get("index", position)}
            content = said.pop("content", {})
            found = whole.setdefault(said["index"], {"parts": []})
            for part in content.get("parts", []):
                add_part(found["parts"], named(part))
            if "logprobsResult" in said:
                said["logprobsResult"] = without_token_ids(said["logprobsResult"])
            found |= {name: value for name, value in said.items() if value not in ([], {}, None)}
    return list(whole.values())


def without_token_ids(value: Any) -> Any:
    """Return log probabilities without the numbers of tokens, which no other format has."""
    if isinstance(value, list):
        return [without_token_ids(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {name: without_token_ids(inner) for name, inner in value.items() if name != "tokenId"}


def named(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part as it is, but for an id that the gateway made up and for arguments that are left out."""
    if "functionCall" not in part:
        return part
    call = {"args": {}, **part["functionCall"]}
    if MADE_UP.fullmatch(call.get("id", "")):
        del call["id"]
    return {**part, "functionCall": call}


def add_part(parts: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """Add a part; more of the same text goes on with the last one, and an empty one brings its signature alone."""
    last = parts[-1] if parts else {}
    both_texts = "text" in part and "text" in last and part.get("thought") == last.get("thought")
    if both_texts and "thoughtSignature" not in last:
        parts[-1] = {**last, **part, "text": last["text"] + part["text"]}
    elif part.get("text") == "" and "thoughtSignature" not in part:
        return
    else:
        parts.append(part)


def written(events: list[Event]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return an answer for Google's clients, whole and as the responses of a stream; their types take each."""
    for event in events:
        if isinstance(event, Started):
            event.model, event.id = "the-model", event.id or "the-id"
    plain = json.loads(google.write_reply(fold(list(events)), SUMMARY, CLIENT))
    chunks = [json.loads(payload) for payload in sse_frames(google.write_events([*events, SUMMARY], CLIENT))]
    assert json.loads(b"".join(write_array([*events, SUMMARY], CLIENT)))[:-1] == chunks[:-1]
    for response in (plain, *chunks):
        types.GenerateContentResponse._from_response(response=json.loads(json.dumps(response)), kwargs={})
    return [plain], chunks


@pytest.mark.parametrize("host", HOSTS)
def test_geminis_answers_come_out_as_they_came_in(host: str) -> None:
    counts: Counter[str] = Counter()
    for exchange in exchanges(host):
        if exchange["status"] != 200:
            continue
        events = events_of(exchange)
        if isinstance(events[-1], Failed):
            assert events[-1].error.code.upper() in FAILURE_WORDS
            continue
        said = candidates_of(chunks_of(exchange))
        for chunks in written(events):
            assert candidates_of(chunks) == said, exchange["name"]
            assert chunks[-1]["responseId"] == (chunks_of(exchange)[0].get("responseId") or chunks[-1]["responseId"])
        counts["equal"] += 1
    assert counts["equal"] > 0


@pytest.mark.parametrize("host", HOSTS)
def test_recorded_requests_reach_gemini_as_they_were_sent(host: str) -> None:
    dialect = google if host == HOSTS[0] else vertex
    count = 0
    for exchange in exchanges(host):
        asked = exchange["request"]
        body = json.dumps(asked).encode()
        chat = google.read_request(body, "gemini")
        target = Target(model_name="gemini", facts=LENIENT)
        sent = json.loads(dialect.write_request(chat, target))
        expected = camel_cased(asked, body)
        if dialect is vertex:
            expected.get("toolConfig", {}).pop("includeServerSideToolInvocations", None)
        assert (sent, target.dropped_fields) == (expected, []), exchange["name"]
        count += 1
    assert count > 0


def answers() -> Iterator[tuple[str, list[Event]]]:
    """Yield the name and the events of every recorded answer of other makers that is one."""
    for exchange in anthropic_exchanges():
        if exchange["status"] == 200:
            yield exchange["name"], anthropic_events(exchange)
    for host in OPENAI_HOSTS:
        for exchange in openai_exchanges(host):
            if exchange["status"] == 200:
                yield exchange["name"], openai_events(exchange)
    for host in RESPONSES_HOSTS:
        for exchange in responses_exchanges(host):
            if exchange["status"] == 200:
                yield exchange["name"], responses_events(exchange)
    for exchange in bedrock_exchanges():
        if exchange["status"] == 200:
            yield exchange["name"], bedrock_events(exchange)
    for exchange in cohere_exchanges():
        yield exchange["name"], list(cohere.read_reply(json.dumps(exchange["json"]).encode()))


def test_other_makers_answers_say_the_same_to_googles_clients() -> None:
    counts: Counter[str] = Counter()
    for name, events in answers():
        if isinstance(events[-1], Failed):
            continue
        reply = fold(list(events))
        for chunks in written(events):
            for index, choice in enumerate(reply.choices):
                candidate = candidates_of(chunks)[index]
                assert meaning_of(candidate) == expected_of(choice), name
                # A client that sends the answer back brings all signed thinking.
                again = google.read_request(
                    json.dumps({"contents": [{"role": "model", "parts": candidate["parts"]}]}).encode(), "m"
                )
                brought = [
                    (part.text, part.signature, part.data)
                    for part in (again.messages[0].parts if again.messages else [])
                    if getattr(part, "format", None) not in (None, "google-gemini-v1") and hasattr(part, "signature")
                ]
                signed = [block for block in choice.reasoning if block.format not in (None, "google-gemini-v1")]
                assert brought == [(block.text, block.signature, block.data) for block in signed], name
                counts["signed" if signed else "plain"] += 1
    assert counts["plain"] > 500
    assert counts["signed"] > 50


def meaning_of(candidate: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a candidate says."""
    parts = candidate["parts"]
    return (
        "".join(part["text"] for part in parts if "text" in part and not part.get("thought")),
        [(part["functionCall"]["name"], part["functionCall"]["args"]) for part in parts if "functionCall" in part],
        candidate["finishReason"],
    )


def expected_of(choice: Any) -> tuple[Any, ...]:
    """Return what a candidate has to say for a canonical answer."""
    words = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}
    transcript = choice.audio.transcript if choice.audio is not None else ""
    return (
        (choice.text or "") + (choice.refusal or "") + transcript,
        [(call.name, arguments_of(call.arguments)) for call in choice.tool_calls],
        words.get(choice.finish or "", "STOP"),
    )


def arguments_of(text: str) -> Any:
    """Return a call's arguments as Google's clients get them."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"input": text} if text.strip() else {}
