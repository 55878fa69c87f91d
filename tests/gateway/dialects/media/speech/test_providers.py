"""Provider sides of the speech dialects: requests to each, and the reading of its answers, good and bad."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Message, Target, Text
from apps.gateway.canonical.events import AudioBytes, Event, Failed, Finished, Started, UsageReported, Waiting
from apps.gateway.canonical.task_options import Speech
from apps.gateway.dialects.media.speech.provider import PROVIDERS
from apps.kernel.usage import Usage

SAID = [Message(role="user", parts=[Text(text="The fox.")])]
HOW = Message(role="user", parts=[Text(text="Slowly")])
CHAT = Chat(
    model="m",
    messages=[*SAID, HOW],
    stream=True,
    task="speech",
    speech=Speech(voice="alloy", response_format="opus", speed=1.5),
)
ALL = ["instructions", "speed", "custom_voice"]


def written(name: str, takes: list[str], chat: Chat = CHAT) -> tuple[str, Any, list[str]]:
    """Return the path, the body, and the fields that were left out."""
    half = PROVIDERS[name]
    target = Target(model_name="m-1", facts={"speech": {"dialect": name, "takes": takes}})
    body = json.loads(half.write_request(chat, target))
    return half.path(chat, target), body, [dropped.param for dropped in target.dropped_fields]


def read(name: str, *frames: bytes) -> list[Event]:
    """Return the events of a streamed answer."""
    return list(PROVIDERS[name].read_events(iter(frames)))


def test_what_each_is_sent() -> None:
    openai = {"model": "m-1", "input": "The fox.", "voice": "alloy", "response_format": "opus"}
    assert written("openai", []) == ("/audio/speech", openai, ["instructions"])
    full = {**openai, "instructions": "Slowly", "speed": 1.5}
    assert written("openai", ALL) == ("/audio/speech", full, [])
    assert written("openai_events", ALL) == ("/audio/speech", {**full, "stream_format": "sse"}, [])
    path, body, lost = written("elevenlabs", ["speed"])
    assert path == "/v1/text-to-speech/alloy/stream?output_format=opus_48000_128"
    assert (body, lost) == (
        {"text": "The fox.", "model_id": "m-1", "voice_settings": {"speed": 1.5}},
        ["instructions"],
    )
    path, body, _ = written("deepgram", [])
    assert (path, body) == ("/v1/speak?model=m-1-alloy&encoding=opus&container=ogg", {"text": "The fox."})


def test_an_address_names_the_version_where_a_data_file_does() -> None:
    half = PROVIDERS["openai"]
    target = Target(model_name="m", facts={"speech": {"dialect": "openai", "api_version": "preview"}})
    assert half.path(CHAT, target) == "/audio/speech?api-version=preview"


def test_voices_by_id_and_by_whole_names() -> None:
    own = replace(CHAT, speech=Speech(voice="voice_1", is_custom_voice=True))
    assert written("openai", ALL, own)[1]["voice"] == {"id": "voice_1"}
    whole = replace(CHAT, speech=Speech(voice="m-1-thalia-en"))
    assert written("deepgram", [], whole)[0] == "/v1/speak?model=m-1-thalia-en&encoding=mp3"


@pytest.mark.parametrize("voice", ["../../voices", "a/b?x=1#y", "a b&model=z"])
def test_a_voice_never_leaves_its_place_in_an_address(voice: str) -> None:
    hostile = replace(CHAT, speech=Speech(voice=voice))
    assert written("elevenlabs", [], hostile)[0].count("/") == 4
    assert written("deepgram", [], hostile)[0].count("&") == 1


@pytest.mark.parametrize("name", ["openai", "elevenlabs", "deepgram"])
def test_bytes_are_passed_on_as_they_come(name: str) -> None:
    assert read(name, b"", b"ID3", b"", b"\xff\xfb") == [
        Waiting(),
        Started(),
        AudioBytes(data=b"ID3"),
        Waiting(),
        AudioBytes(data=b"\xff\xfb"),
        Finished(reason="stop"),
    ]


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ((), "The provider sent no audio"),
        ((b"", b""), "The provider sent no audio"),
        ((b'{"error": {"mess', b'age": "no such voice", "code": 400}}'), "no such voice"),
        ((b'{"fine": true}',), "The provider sent no audio"),
        ((b"<html><body>Bad gateway",), "The provider sent no audio"),
    ],
)
def test_what_is_no_sound_fails(frames: tuple[bytes, ...], words: str) -> None:
    *silence, last = read("openai", *frames)
    assert all(type(event) is Waiting for event in silence)
    assert isinstance(last, Failed)
    assert last.error.message == words


def test_samples_that_begin_like_json_are_sound_once_they_are_many() -> None:
    piece = b'{"' + b"\0" * 20_000
    assert read("openai", piece) == [Started(), AudioBytes(data=piece), Finished(reason="stop")]


def delta(sound: bytes) -> bytes:
    """Return an event with sound."""
    return json.dumps({"type": "speech.audio.delta", "audio": b64encode(sound).decode()}).encode()


def test_events_hold_the_same_sound_and_its_tokens() -> None:
    done = b'{"type":"speech.audio.done","usage":{"input_tokens":9,"output_tokens":40,"total_tokens":49}}'
    assert read("openai_events", delta(b"ID3"), b"", delta(b"x"), done) == [
        Started(),
        AudioBytes(data=b"ID3"),
        Waiting(),
        AudioBytes(data=b"x"),
        UsageReported(usage=Usage(input=9, audio_output=40)),
        Finished(reason="stop"),
    ]


@pytest.mark.parametrize("usage", ["null", "[]", '{"output_tokens": -4}', '{"output_tokens": true}', "{}"])
def test_counts_that_are_none_are_left_to_the_estimate(usage: str) -> None:
    events = read("openai_events", delta(b"x"), f'{{"type":"speech.audio.done","usage":{usage}}}'.encode())
    assert events == [Started(), AudioBytes(data=b"x"), Finished(reason="stop")]


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ((delta(b"x"),), "The provider's answer ended before it was complete"),
        ((b'{"type":"speech.audio.done"}',), "The provider sent no audio"),
        ((b'{"type":"speech.audio.delta","audio":"%%"}',), "The provider sent audio that is not base64"),
        ((b'{"type":"speech.audio.delta"}',), "The provider sent audio that is not base64"),
        ((b"[1,",), "The provider sent invalid JSON"),
        ((b'{"error":{"message":"overloaded","code":503}}',), "overloaded"),
    ],
)
def test_broken_events_fail(frames: tuple[bytes, ...], words: str) -> None:
    last = read("openai_events", *frames)[-1]
    assert isinstance(last, Failed)
    assert last.error.message == words


def test_deepgrams_words_for_a_refusal() -> None:
    half = PROVIDERS["deepgram"]
    failure = half.read_failure(400, b'{"err_code": "INVALID_QUERY_PARAMETER", "err_msg": "No such model"}')
    assert (failure.message, failure.code) == ("No such model", "INVALID_QUERY_PARAMETER")
    assert half.read_failure(500, b"<html>").message == "The provider answered with status 500"


def chunk(*sounds: str, finish: str | None = None, **fields: Any) -> bytes:
    """Return a chunk of Google's answer, with sounds in base64."""
    parts = [{"inlineData": {"mimeType": "audio/L16;codec=pcm;rate=24000", "data": sound}} for sound in sounds]
    candidate = {
        "index": 0,
        "content": {"parts": parts, "role": "model"},
        **({"finishReason": finish} if finish else {}),
    }
    return json.dumps({"candidates": [candidate], **fields}).encode()


def test_what_google_is_sent() -> None:
    path, body, lost = written("google", ["instructions"])
    assert (path, lost) == ("/models/m-1:streamGenerateContent?alt=sse", [])
    assert body == {
        "contents": [{"role": "user", "parts": [{"text": "The fox.", "speechMetadata": {"style": "Slowly"}}]}],
        "generationConfig": {"responseModalities": ["AUDIO"], "speechConfig": {"voiceConfig": {"voice": "alloy"}}},
    }


def test_samples_of_googles_are_passed_on_and_made_a_file() -> None:
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 40}
    frames = [chunk("AAE="), b"", chunk("", "/v8="), chunk(finish="STOP", usageMetadata=usage)]
    rest: list[Event] = [
        AudioBytes(data=b"\0\1"),
        Waiting(),
        AudioBytes(data=b"\xfe\xff"),
        UsageReported(usage=Usage(input=9, audio_output=40)),
        Finished(reason="stop", native="STOP"),
    ]
    assert read("google", *frames) == [Started(), *rest]
    started, head, *others = read("google_wav", *frames)
    assert (started, others) == (Started(), rest)
    assert isinstance(head, AudioBytes)
    assert head.data == bytes.fromhex(
        "52494646 ffffffff 57415645 666d7420 10000000 0100 0100 c05d0000 80bb0000 0200 1000 64617461 ffffffff"
    )


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ((chunk(finish="STOP"),), "The provider sent no audio, which says STOP"),
        ((chunk("!"),), "The provider sent audio that is not base64"),
        ((b'{"error": {"code": 400, "message": "no such voice"}}',), "no such voice"),
        ((b'{"promptFeedback": {"blockReason": "SAFETY"}}',), "The provider sent no audio, which says SAFETY"),
    ],
)
def test_what_is_no_sound_of_googles_fails(frames: tuple[bytes, ...], words: str) -> None:
    for name in ("google", "google_wav"):
        (last,) = read(name, *frames)
        assert isinstance(last, Failed)
        assert last.error.message == words
