"""Transcripts through the whole pipeline, over real HTTP: in every format, refused by field, billed (section 4)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from apps.billing.models import LedgerEntry
from apps.logs.models import RequestLog
from apps.organizations.models import Organization, Project
from apps.sandbox.generated_media import recording
from tests.support.audio_requests import SAID, events_of, field_of, tagged, transcribe
from tests.support.sandbox_providers import add_provider as add_provider
from tests.support.sandbox_providers import clock as clock
from tests.support.upstream import Caller, nothing_happened, settle_all

SEGMENTS = [
    {"id": 0, "seek": 0, "start": 0.0, "end": 1.333, "text": " The fox is here."},
    {"id": 1, "seek": 0, "start": 1.333, "end": 2.0, "text": " It waits."},
]
SECONDS = {"type": "duration", "seconds": 2.0}
# At 0.0061 USD a minute.
TWO_SECONDS = Decimal("0.000203333333")


def logged() -> RequestLog:
    """Return the only row; assert that its cost equals the charge."""
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert [-entry.credits for entry in LedgerEntry.objects.all()] == ([row.cost] if row.cost else [])
    return row


def test_json(caller: Caller) -> None:
    tag = tagged("listener")
    response = transcribe(caller, language="en", prompt="foxes", temperature="0.5")
    assert (response.status_code, response["Content-Type"]) == (200, "application/json"), response.content
    body = response.json()
    assert body.pop("metadata")["used_provider"] == "sandbox"
    assert body == {"text": SAID, "usage": SECONDS}
    (sent,) = caller.sent(tag)
    assert sent["path"] == "/v1/audio/transcriptions"
    stated = {name: field_of(sent, name) for name in ("response_format", "language", "prompt", "temperature")}
    assert stated == {
        "response_format": ["verbose_json"],
        "language": ["en"],
        "prompt": ["foxes"],
        "temperature": ["0.5"],
    }
    assert 'filename="audio.wav"' in sent["body"]


def test_text_and_captions(caller: Caller) -> None:
    text = transcribe(caller, response_format="text")
    assert (text["Content-Type"], text.content.decode()) == ("text/plain; charset=utf-8", f"{SAID}\n")
    srt = transcribe(caller, response_format="srt")
    assert (srt["Content-Type"], srt.content.decode()) == (
        "application/x-subrip; charset=utf-8",
        "1\n00:00:00,000 --> 00:00:01,333\nThe fox is here.\n\n2\n00:00:01,333 --> 00:00:02,000\nIt waits.\n",
    )
    vtt = transcribe(caller, response_format="vtt")
    assert (vtt["Content-Type"], vtt.content.decode()) == (
        "text/vtt; charset=utf-8",
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.333\nThe fox is here.\n\n00:00:01.333 --> 00:00:02.000\nIt waits.\n",
    )


def test_verbose_json(caller: Caller) -> None:
    body = transcribe(caller, response_format="verbose_json").json()
    body.pop("metadata")
    assert body == {
        "task": "transcribe",
        "language": "english",
        "duration": 2.0,
        "text": SAID,
        "segments": SEGMENTS,
        "usage": SECONDS,
    }
    words = {"response_format": "verbose_json", "timestamp_granularities[]": ["word"]}
    body = transcribe(caller, **words).json()
    assert "segments" not in body
    assert [word["word"] for word in body["words"]] == SAID.split()
    assert body["words"][0] == {"word": "The", "start": 0.0, "end": 0.333}


def test_diarized_json(caller: Caller) -> None:
    body = transcribe(caller, model="listener-tokens", response_format="diarized_json").json()
    assert [(one["speaker"], one["text"], one["end"]) for one in body["segments"]] == [
        ("A", " The fox is here.", 1.333),
        ("B", " It waits.", 2.0),
    ]
    assert {one["type"] for one in body["segments"]} == {"transcript.text.segment"}
    assert (body["task"], body["duration"], body["text"]) == ("transcribe", 2.0, SAID)


def test_translations(caller: Caller) -> None:
    tag = tagged("listener")
    body = transcribe(caller, to="translations", response_format="verbose_json").json()
    assert (body["task"], body["text"]) == ("translate", SAID)
    assert [sent["path"] for sent in caller.sent(tag)] == ["/v1/audio/translations"]
    assert logged().route == "audio_translations"


def test_minutes_are_charged_to_the_millisecond(caller: Caller) -> None:
    transcribe(caller, recording(SAID, 3.1234), headers={"x-request-id": "fox-1"})
    row = logged()
    assert (row.route, row.request_id, row.status_code) == ("audio_transcriptions", "fox-1", 200)
    assert (row.used_model, row.unified_finish_reason, row.estimated_cost) == ("listener", "completed", False)
    # 3.123 seconds (of 24,987 samples) at 0.0061 USD a minute.
    assert row.prices["used"] == {"audio_milliseconds": 3123}
    assert row.cost == Decimal("0.000317505000")
    assert row.cost == Decimal(row.prices["audio_minute"]) * 3123 / 60_000


def test_tokens_are_charged_as_the_provider_counts_them(caller: Caller) -> None:
    body = transcribe(caller, model="listener-tokens", prompt="foxes").json()
    assert body["usage"] == {
        "type": "tokens",
        "input_tokens": 22,
        "input_token_details": {"text_tokens": 2, "audio_tokens": 20},
        "output_tokens": 7,
        "total_tokens": 29,
    }
    row = logged()
    assert row.prices["used"] == {"input": 2, "audio_input": 20, "output": 7}
    assert (row.prompt_tokens, row.completion_tokens, row.cost) == (22, 7, Decimal("0.0001933"))
    price = {name: Decimal(row.prices[name]) for name in ("input", "audio_input", "output")}
    assert row.cost == (price["input"] * 2 + price["audio_input"] * 20 + price["output"] * 7) / 1_000_000


def test_what_nobody_counted_is_estimated_by_the_files_head_and_marked(caller: Caller) -> None:
    tagged("listener-tokens", **{"no-usage": ""})
    transcribe(caller, model="listener-tokens")
    row = logged()
    assert row.estimated_cost is True
    assert row.prices["used"]["audio_input"] == 20


def test_silence_is_paid_for_since_it_was_listened_to(caller: Caller) -> None:
    assert transcribe(caller, recording("")).json()["text"] == ""
    assert logged().cost == TWO_SECONDS


def test_a_stream_is_passed_on_as_it_comes(caller: Caller) -> None:
    response = transcribe(caller, model="listener-tokens", stream="true")
    assert response["Content-Type"] == "text/event-stream; charset=utf-8"
    *deltas, done = events_of(response)
    assert len(deltas) > 1
    assert {event["type"] for event in deltas} == {"transcript.text.delta"}
    assert "".join(event["delta"] for event in deltas) == SAID
    assert (done["type"], done["text"], done["usage"]["total_tokens"]) == ("transcript.text.done", SAID, 27)
    assert logged().cost == Decimal("0.0001887")


def test_a_model_that_does_not_stream_says_all_in_one_delta(caller: Caller) -> None:
    tag = tagged("listener")
    assert events_of(transcribe(caller, stream="true")) == [
        {"type": "transcript.text.delta", "delta": SAID},
        {"type": "transcript.text.done", "text": SAID, "usage": SECONDS},
    ]
    assert field_of(caller.sent(tag)[0], "stream") == []
    assert logged().cost == TWO_SECONDS


def test_speakers_of_a_stream(caller: Caller) -> None:
    events = events_of(transcribe(caller, model="listener-tokens", stream="true", response_format="diarized_json"))
    segments = [event for event in events if event["type"] == "transcript.text.segment"]
    assert [(one["speaker"], one["id"], one["start"]) for one in segments] == [
        ("A", "seg_0", 0.0),
        ("B", "seg_1", 1.333),
    ]


def test_one_who_leaves_in_the_middle_pays_an_estimate(caller: Caller) -> None:
    response = transcribe(caller, model="listener-tokens", stream="true")
    assert next(iter(response.streaming_content))
    response._iterator.close()
    row = logged()
    assert (row.canceled, row.estimated_cost, row.prices["used"]["audio_input"]) == (True, True, 20)
    assert row.cost > 0


@pytest.mark.parametrize(
    "directives",
    [{"status": "503"}, {"error": "body"}, {"broken": "middle"}, {"cut": "middle"}, {"html": "", "status": "502"}],
)
def test_who_answers_brokenly_is_passed_over(
    caller: Caller, add_provider: Any, clock: Any, directives: dict[str, str]
) -> None:
    add_provider("spare", model_id="listener", prices={"audio_minute": "0.6"})
    tagged("listener", **directives)
    body = transcribe(caller).json()
    assert (body["text"], body["metadata"]["used_provider"]) == (SAID, "spare")
    assert logged().cost == Decimal("0.02")


def test_a_failure_of_all_is_told_and_free(caller: Caller, clock: Any) -> None:
    tagged("listener", status="503")
    refused = transcribe(caller)
    assert (refused.status_code, refused["Content-Type"]) == (503, "application/json")
    row = logged()
    assert (row.cost, row.has_error) == (0, True)


def test_the_second_time_nobody_is_asked(caller: Caller) -> None:
    Project.objects.filter(pk=caller.key.project_id).update(caching_enabled=True, cache_duration_seconds=60)
    tag = tagged("listener")
    first, second = (
        transcribe(caller, response_format="verbose_json"),
        transcribe(caller, response_format="verbose_json"),
    )
    other = transcribe(caller, recording("Another fox."), response_format="verbose_json")
    assert [one["x-gateway-cache"] for one in (first, second, other)] == ["miss", "hit", "miss"]
    assert second.json()["segments"] == first.json()["segments"]
    assert (other.json()["text"], len(caller.sent(tag))) == ("Another fox.", 2)


def test_what_a_recording_may_cost_is_held_before_it_is_sent(caller: Caller) -> None:
    tag = tagged("listener")
    Organization.objects.update(credits=Decimal("0.0061"))
    refused = transcribe(caller, recording(SAID, 61))
    assert refused.status_code == 402
    assert nothing_happened(caller)
    assert caller.sent(tag) == []
    assert transcribe(caller, recording(SAID, 59)).status_code == 200


@pytest.mark.parametrize(
    ("provider", "model", "path", "key", "price"),
    [
        ("openai", "whisper-1", "/v1", "OPENAI_API_KEY", "0.006"),
        ("azure", "whisper-1", "/v1", "AZURE_API_KEY", "0.006"),
        ("groq", "whisper-large-v3", "/v1", "GROQ_API_KEY", "0.00185"),
        ("mistral", "voxtral-mini-transcribe", "/v1", "MISTRAL_API_KEY", "0.002"),
        ("deepgram", "nova-3", "", "DEEPGRAM_API_KEY", "0.0077"),
        ("elevenlabs", "scribe-v2", "", "ELEVENLABS_API_KEY", "0.003666666667"),
    ],
)
def test_every_format_of_providers(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, provider: str, model: str, path: str, key: str, price: str
) -> None:
    monkeypatch.setenv(key, "secret")
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", caller.sandbox_url + path)
    tagged(model, provider, "listener")
    body = transcribe(caller, recording(SAID, 60), model=f"{provider}/{model}").json()
    assert (body["text"], body["usage"]) == (SAID, {"type": "duration", "seconds": 60.0})
    row = logged()
    assert (row.used_provider, row.cost, row.estimated_cost) == (provider, Decimal(price), False)


@pytest.mark.parametrize(("provider", "model"), [("deepgram", "nova-3"), ("elevenlabs", "scribe-v2")])
def test_captions_and_speakers_of_those_who_tell_words(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, provider: str, model: str
) -> None:
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", "secret")
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", caller.sandbox_url)
    tagged(model, provider, "listener")
    vtt = transcribe(caller, model=f"{provider}/{model}", response_format="vtt").content.decode()
    assert vtt.startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.333\nThe fox is here.\n\n00:00:01.333 -->")
    body = transcribe(caller, model=f"{provider}/{model}", response_format="diarized_json").json()
    assert [one["speaker"] for one in body["segments"]] == ["A", "B"] * 3
