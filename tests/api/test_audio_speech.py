"""Speech through the whole pipeline, over real HTTP: streamed, refused by field, and billed once (section 4)."""

from __future__ import annotations

from base64 import b64decode
from decimal import Decimal
from typing import Any

import pytest

from apps.billing.models import LedgerEntry
from apps.gateway.dialects.media.speech.provider import WAV_HEAD
from apps.logs.models import RequestLog
from apps.organizations.models import Project
from apps.sandbox.generated_media import spoken
from tests.support.audio_requests import SAID, events_of, sound_of, speak, tagged
from tests.support.sandbox_providers import add_provider as add_provider
from tests.support.sandbox_providers import clock as clock
from tests.support.upstream import Caller, nothing_happened, settle_all

SOUND = b"".join(spoken(SAID))


def logged() -> RequestLog:
    """Return the only row; assert that its cost follows from its prices and equals the charge."""
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert [-entry.credits for entry in LedgerEntry.objects.all()] == ([row.cost] if row.cost else [])
    return row


def test_the_sound_is_passed_on_as_it_comes(caller: Caller) -> None:
    tag = tagged("speaker", gap="20")
    response = speak(caller, speed=1.5)
    assert (response.status_code, response["Content-Type"]) == (200, "audio/mpeg")
    pieces = list(response.streaming_content)
    assert (b"".join(pieces), len(pieces) > 1) == (SOUND, True)
    (sent,) = caller.sent(tag)
    own = sent["body"].pop("model")
    assert own.startswith("speaker:tag=")
    assert sent["body"] == {"input": SAID, "voice": "alloy", "response_format": "mp3", "speed": 1.5}


@pytest.mark.parametrize(
    ("form", "content_type"),
    [
        ("opus", "audio/ogg"),
        ("aac", "audio/aac"),
        ("flac", "audio/flac"),
        ("wav", "audio/wav"),
        ("pcm", "audio/pcm"),
    ],
)
def test_each_format_has_its_content_type(caller: Caller, form: str, content_type: str) -> None:
    response = speak(caller, response_format=form)
    assert (response["Content-Type"], sound_of(response)) == (content_type, SOUND)


def test_characters_are_charged_to_the_digit(caller: Caller) -> None:
    sound_of(speak(caller, "Füchse 🦊", headers={"x-request-id": "fox-1"}))
    row = logged()
    assert (row.route, row.request_id, row.status_code, row.streamed) == ("audio_speech", "fox-1", 200, True)
    assert (row.used_model, row.used_provider, row.unified_finish_reason) == ("speaker", "sandbox", "completed")
    # Eight characters at 17.3 USD per million; the gateway counts them, which is no estimate.
    assert (row.cost, row.estimated_cost) == (Decimal("0.0001384"), False)
    assert row.prices["used"] == {"characters": 8}
    assert row.cost == Decimal(row.prices["characters"]) * 8 / 1_000_000


def test_tokens_are_charged_as_the_provider_counts_them(caller: Caller) -> None:
    tag = tagged("speaker-tokens")
    response = speak(caller, model="speaker-tokens", instructions="Slowly, please")
    assert (response["Content-Type"], sound_of(response)) == ("audio/mpeg", SOUND)
    (sent,) = caller.sent(tag)
    assert (sent["body"]["stream_format"], sent["body"]["instructions"]) == ("sse", "Slowly, please")
    row = logged()
    # 7 and 4 tokens of text, one of sound for each of six words.
    assert row.prices["used"] == {"input": 11, "audio_output": 6}
    assert (row.cost, row.estimated_cost) == (Decimal("0.00008291"), False)
    assert row.cost == (Decimal(row.prices["input"]) * 11 + Decimal(row.prices["audio_output"]) * 6) / 1_000_000


@pytest.mark.parametrize("model", ["speaker", "speaker-tokens"])
def test_events_hold_the_sound_whatever_the_provider_sends(caller: Caller, model: str) -> None:
    response = speak(caller, model=model, stream_format="sse")
    assert response["Content-Type"] == "text/event-stream; charset=utf-8"
    *deltas, done = events_of(response)
    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
    assert b"".join(b64decode(event["audio"]) for event in deltas) == SOUND
    tokens = {"input_tokens": 7, "output_tokens": 6, "total_tokens": 13}
    none = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    assert done == {"type": "speech.audio.done", "usage": tokens if model == "speaker-tokens" else none}


def test_tokens_that_nobody_counted_are_estimated_and_marked(caller: Caller) -> None:
    tagged("speaker-tokens", **{"no-usage": ""})
    sound_of(speak(caller, model="speaker-tokens"))
    row = logged()
    used = row.prices["used"]
    assert (row.estimated_cost, used["estimated"], used["audio_output"] > 0) == (True, True, True)
    expected = Decimal(row.prices["input"]) * used["input"] + Decimal(row.prices["audio_output"]) * used["audio_output"]
    assert row.cost == expected / 1_000_000


@pytest.mark.parametrize("model", ["speaker", "speaker-tokens"])
def test_one_who_leaves_pays_for_what_was_produced(caller: Caller, model: str) -> None:
    response = speak(caller, "word " * 200, model=model)
    pieces = iter(response.streaming_content)
    assert next(pieces)
    # As the server does; closing the response itself would close the test's database connection.
    response._iterator.close()
    row = logged()
    assert (row.canceled, row.unified_finish_reason) == (True, "canceled")
    if model == "speaker":
        # All characters: the provider was given all of them.
        assert (row.cost, row.estimated_cost) == (Decimal("0.0173"), False)
    else:
        assert row.estimated_cost is True
        assert 0 < row.prices["used"]["audio_output"] < 200
    assert row.cost > 0


@pytest.mark.parametrize("fault", ["cut=2", "reset=2"])
def test_sound_that_breaks_off_ends_before_its_end_and_is_free(caller: Caller, fault: str) -> None:
    name, _, value = fault.partition("=")
    tagged("speaker", **{name: value})
    response = speak(caller)
    got: list[bytes] = []
    with pytest.raises(ConnectionError):
        got.extend(response.streaming_content)
    assert b"".join(got) == SOUND[:960]
    row = logged()
    assert (row.cost, row.has_error, row.unified_finish_reason) == (0, True, "upstream_error")


def test_events_that_break_off_say_so_and_are_free(caller: Caller) -> None:
    tagged("speaker-tokens", error="2")
    events = events_of(speak(caller, model="speaker-tokens", stream_format="sse"))
    assert [event["type"] for event in events] == ["speech.audio.delta", "speech.audio.delta", "error"]
    assert (logged().cost, LedgerEntry.objects.count()) == (0, 0)


@pytest.mark.parametrize(
    "directives",
    [{"status": "503"}, {"error": "body"}, {"empty": ""}, {"cut": "head"}],
    ids=["refusal", "an error in the place of sound", "no sound", "cut"],
)
def test_who_sends_no_sound_is_passed_over(
    caller: Caller, add_provider: Any, clock: Any, directives: dict[str, str]
) -> None:
    add_provider("spare", model_id="speaker", prices={"characters": "20"})
    tagged("speaker", **directives)
    response = speak(caller)
    assert (response.status_code, sound_of(response)) == (200, SOUND)
    row = logged()
    assert (row.used_provider, row.cost) == ("spare", Decimal(len(SAID)) * 20 / 1_000_000)


def test_nothing_of_it_is_kept_for_the_next_one(caller: Caller) -> None:
    Project.objects.filter(pk=caller.key.project_id).update(caching_enabled=True, cache_duration_seconds=60)
    tag = tagged("speaker")
    for _ in range(2):
        assert sound_of(speak(caller)) == SOUND
    assert len(caller.sent(tag)) == 2


def test_a_hedge_never_asks_a_second_provider(caller: Caller, add_provider: Any) -> None:
    add_provider("spare", model_id="speaker", prices={"characters": "20"})
    tag = tagged("speaker", latency="120")
    assert sound_of(speak(caller, headers={"x-hedge": "20"})) == SOUND
    assert len(caller.sent(tag)) == 1
    assert logged().cost == Decimal(len(SAID)) * Decimal("17.3") / 1_000_000


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": ""}, "input"),
        ({"input": " \n"}, "input"),
        ({"input": ["a"]}, "input"),
        ({"input": "a" * 4097}, "input"),
        ({"input": "a" * 100_001}, "input"),
        ({"model": None}, "model"),
        ({"model": 7}, "model"),
        ({"model": "m" * 513}, "model"),
        ({"voice": None}, "voice"),
        ({"voice": ""}, "voice"),
        ({"voice": "a\nb"}, "voice"),
        ({"voice": "a" * 201}, "voice"),
        ({"voice": {}}, "voice.id"),
        ({"voice": {"id": 7}}, "voice.id"),
        ({"voice": {"id": "voice_1"}}, "voice"),
        ({"response_format": "ogg"}, "response_format"),
        ({"response_format": "opus", "model": "speaker-tokens"}, "response_format"),
        ({"speed": 0.2}, "speed"),
        ({"speed": 4.1}, "speed"),
        ({"speed": "fast"}, "speed"),
        ({"stream_format": "bytes"}, "stream_format"),
        ({"instructions": 7}, "instructions"),
    ],
)
def test_a_wrong_field_is_refused_by_name_and_changes_nothing(
    caller: Caller, fields: dict[str, Any], param: str
) -> None:
    refused = speak(caller, fields.pop("input", SAID), **fields)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), refused.content
    assert nothing_happened(caller)


def test_what_is_not_taken_is_told_and_not_sent(caller: Caller) -> None:
    tag = tagged("speaker")
    response = speak(caller, instructions="Slowly", emotion="joy")
    assert set(response["x-gateway-loss"].split(", ")) == {"instructions", "emotion"}
    sound_of(response)
    (sent,) = caller.sent(tag)
    assert sent["body"].keys() == {"model", "input", "voice", "response_format"}
    refused = speak(caller, emotion="joy", headers={"x-strict": "true"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "emotion")


def test_models_of_another_kind_are_refused_with_the_path_to_ask(caller: Caller) -> None:
    refused = speak(caller, model="echo")
    assert refused.json()["error"]["message"] == "echo is no speech model; chat with it at /v1/chat/completions"
    chat = caller.chat(model="speaker")
    assert (chat.status_code, chat.json()["error"]["param"]) == (400, "model")
    assert chat.json()["error"]["message"].endswith("ask for it at /v1/audio/speech")
    assert nothing_happened(caller)


@pytest.mark.parametrize(
    ("provider", "model", "stands", "path", "key", "voice", "price"),
    [
        ("openai", "tts-1", "speaker", "/v1", "OPENAI_API_KEY", "alloy", "15"),
        ("azure", "tts-1", "speaker", "/v1", "AZURE_API_KEY", "alloy", "15"),
        ("deepgram", "aura-2", "speaker", "", "DEEPGRAM_API_KEY", "thalia-en", "30"),
        ("elevenlabs", "eleven-flash-v2.5", "speaker", "", "ELEVENLABS_API_KEY", "JBFqnCBsd6RMkjVDRZzb", "40"),
    ],
)
def test_every_format_of_providers(
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
    provider: str,
    model: str,
    stands: str,
    path: str,
    key: str,
    voice: str,
    price: str,
) -> None:
    monkeypatch.setenv(key, "secret")
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", caller.sandbox_url + path)
    tagged(model, provider, stands)
    response = speak(caller, model=f"{provider}/{model}", voice=voice)
    assert (response.status_code, sound_of(response)) == (200, SOUND)
    row = logged()
    assert (row.used_provider, row.cost) == (provider, Decimal(price) * len(SAID) / 1_000_000)
    monkeypatch.setenv(key, "invalid")


@pytest.mark.parametrize(("form", "head"), [("pcm", b""), ("wav", WAV_HEAD)])
def test_googles_samples_come_with_a_head_or_without(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, form: str, head: bytes
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "secret")
    monkeypatch.setenv("GOOGLE_BASE_URL", f"{caller.sandbox_url}/v1beta")
    model = "gemini-3.8-flash-tts"
    tag = tagged(model, "google", "speaker")
    response = speak(caller, model=model, voice="Kore", instructions="Slowly", response_format=form)
    assert (response.status_code, sound_of(response)) == (200, head + SOUND)
    (sent,) = caller.sent(tag)
    assert sent["body"]["contents"][0]["parts"] == [{"text": SAID, "speechMetadata": {"style": "Slowly"}}]
    row = logged()
    # Seven tokens of text, one of sound for each of six words.
    assert row.prices["used"] == {"input": 7, "audio_output": 6}
    assert row.cost == (Decimal("0.5") * 7 + Decimal(9) * 6) / 1_000_000


def test_a_format_that_google_does_not_have_is_refused_by_name(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "secret")
    refused = speak(caller, model="gemini-3.8-flash-tts", voice="Kore")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "response_format")
    assert nothing_happened(caller)
