"""Provider sides of the transcription dialects: requests to each, and the reading of its answers, good and bad."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Message, Target, Text
from apps.gateway.canonical.events import (
    Event,
    Failed,
    Finished,
    Logprobs,
    Started,
    TextDelta,
    TranscriptTimed,
    UsageReported,
    Waiting,
)
from apps.gateway.canonical.task_options import Recording, Transcription
from apps.gateway.dialects.media.transcription import segments_of
from apps.gateway.dialects.media.transcription.provider import PROVIDERS
from apps.kernel.usage import Usage
from apps.sandbox.http_framing import read_form

FILE = Recording(
    extension="wav", media_type="audio/wav", data=b"RIFF", digest="d", milliseconds=10, max_milliseconds=10
)
CHAT = Chat(
    model="m",
    messages=[Message(role="user", parts=[Text(text="foxes")])],
    temperature=0.5,
    task="transcription",
    transcription=Transcription(recording=FILE, language="en", chunking_strategy="auto"),
)
ALL = ["prompt", "temperature", "chunking_strategy", "response_format", "segments", "words"]
FORMATS = ("openai", "deepgram", "elevenlabs")


def half_of(name: str) -> Any:
    """Return the provider's side."""
    return PROVIDERS[name]


def target_of(name: str, takes: list[str], **facts: Any) -> Target:
    """Return a target that takes so much."""
    dialect = name.removesuffix("_stream")
    return Target(model_name="m-1", facts={"transcription": {"dialect": dialect, "takes": takes, **facts}})


def sent(name: str, takes: list[str], chat: Chat = CHAT, **facts: Any) -> tuple[str, list[tuple[str, str]], list[str]]:
    """Return the path, the fields of the form, and the names left out; check the file as well."""
    half, target = half_of(name), target_of(name, takes, **facts)
    body = half.write_request(chat, target)
    form = read_form(body)
    assert (form.filename, form.data) == ("audio.wav", b"RIFF")
    boundary = half.headers(chat, target)["Content-Type"].partition("boundary=")[2]
    assert body.startswith(f"--{boundary}\r\n".encode())
    return half.path(chat, target), form.fields, [dropped.param for dropped in target.dropped_fields]


def read(name: str, answer: Any) -> list[Event]:
    """Return the events of an answer."""
    return list(half_of(name).read_reply(answer if isinstance(answer, bytes) else json.dumps(answer).encode()))


def test_what_openai_is_sent() -> None:
    path, fields, lost = sent("openai", ALL)
    assert (path, lost) == ("/audio/transcriptions", [])
    assert fields == [
        ("model", "m-1"),
        ("response_format", "json"),
        ("language", "en"),
        ("prompt", "foxes"),
        ("temperature", "0.5"),
        ("chunking_strategy", "auto"),
    ]
    assert sent("openai", []) == (
        "/audio/transcriptions",
        [("model", "m-1"), ("language", "en")],
        ["prompt", "temperature", "chunking_strategy"],
    )


def test_the_form_that_tells_most_is_asked_for() -> None:
    asked = replace(CHAT, transcription=replace(CHAT.transcription, response_format="srt", words=True))
    _, fields, _ = sent("openai", ALL, asked, verbose=True)
    assert fields[1] == ("response_format", "verbose_json")
    assert [value for name, value in fields if name == "timestamp_granularities[]"] == ["word", "segment"]
    speakers = replace(CHAT, transcription=replace(CHAT.transcription, response_format="diarized_json"))
    assert sent("openai", ALL, speakers)[1][1] == ("response_format", "diarized_json")


def test_translations_have_a_path_and_no_language() -> None:
    asked = replace(CHAT, transcription=replace(CHAT.transcription, translates=True))
    path, fields, _ = sent("openai", ["response_format"], asked)
    assert (path, fields) == ("/audio/translations", [("model", "m-1"), ("response_format", "json")])


def test_streams_are_asked_for_where_they_are_read() -> None:
    assert sent("openai_stream", [])[1] == [("stream", "true"), ("model", "m-1"), ("language", "en")]


def test_a_prompt_cannot_end_its_field() -> None:
    wicked = 'x\r\n--d\r\nContent-Disposition: form-data; name="model"\r\n\r\ndear\r\n'
    chat = replace(CHAT, messages=[Message(role="user", parts=[Text(text=wicked)])])
    assert ("prompt", wicked) in sent("openai", ["prompt"], chat)[1]


def test_what_deepgram_is_sent() -> None:
    half, target = half_of("deepgram"), target_of("deepgram", [])
    assert half.path(CHAT, target) == "/v1/listen?model=m-1&smart_format=true&language=en"
    assert half.headers(CHAT, target) == {"Content-Type": "audio/wav", "Accept": "application/json"}
    assert half.write_request(CHAT, target) == b"RIFF"
    asked = Transcription(recording=FILE, response_format="diarized_json")
    path = half.path(replace(CHAT, transcription=asked), target)
    assert path == "/v1/listen?model=m-1&smart_format=true&detect_language=true&diarize=true"


def test_what_elevenlabs_is_sent() -> None:
    path, fields, lost = sent("elevenlabs", ["temperature"])
    assert (path, lost) == ("/v1/speech-to-text", ["prompt", "chunking_strategy"])
    assert fields == [
        ("model_id", "m-1"),
        ("tag_audio_events", "false"),
        ("language_code", "en"),
        ("temperature", "0.5"),
    ]


WORDS = [{"word": "Hi.", "start": 0.0, "end": 0.5}, {"word": "Fox", "start": 0.5, "end": 1.0}]
SEGMENTS = [
    {"id": 0, "start": 0.0, "end": 0.5, "text": "Hi."},
    {"id": 1, "start": 0.5, "end": 1.0, "text": "Fox"},
]


def test_openais_answers() -> None:
    verbose = {
        "text": " Hi. Fox",
        "language": "english",
        "duration": 1.004,
        "segments": [*SEGMENTS, {"text": "no times"}, 7],
        "words": [*WORDS, {"word": "x", "start": -1, "end": 2}],
    }
    timing = TranscriptTimed(segments=SEGMENTS, words=WORDS, language="english", duration=1.004)
    assert read("openai", verbose) == [
        Started(),
        TextDelta(text="Hi. Fox"),
        timing,
        Finished(reason="stop"),
        UsageReported(usage=Usage(audio_milliseconds=1004)),
    ]
    logprobs = [{"token": "Hi", "logprob": -0.1, "bytes": [72]}]
    assert read("openai", {"text": "Hi", "logprobs": logprobs})[0] == Logprobs(logprobs={"content": logprobs})


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        ({"usage": {"type": "duration", "seconds": 9}}, Usage(audio_milliseconds=9000)),
        ({"usage": {"prompt_audio_seconds": 9, "prompt_tokens": 4}}, Usage(audio_milliseconds=9000)),
        ({"duration": 8.5}, Usage(audio_milliseconds=8500)),
        (
            {
                "usage": {
                    "type": "tokens",
                    "input_tokens": 24,
                    "output_tokens": 5,
                    "input_token_details": {"text_tokens": 4, "audio_tokens": 20},
                }
            },
            Usage(input=4, audio_input=20, output=5),
        ),
        ({"usage": {"type": "tokens", "input_tokens": 24, "output_tokens": 5}}, Usage(audio_input=24, output=5)),
        ({"usage": {"type": "tokens", "input_tokens": -1}}, None),
        ({"usage": {"type": "duration", "seconds": 1e300}}, None),
        ({"duration": "9"}, None),
        ({}, None),
    ],
)
def test_counts_of_openais_format(told: dict[str, Any], usage: Usage | None) -> None:
    reported = [event.usage for event in read("openai", {"text": "x", **told}) if isinstance(event, UsageReported)]
    assert reported == ([] if usage is None else [usage])


def test_deepgrams_answers() -> None:
    words = [{**word, "word": word["word"].lower(), "punctuated_word": word["word"], "speaker": 1} for word in WORDS]
    told = {"transcript": "Hi. Fox", "words": words}
    answer = {"metadata": {"duration": 1.5}, "results": {"channels": [{"alternatives": [told]}]}}
    segments = [{**segment, "speaker": "B"} for segment in SEGMENTS]
    assert read("deepgram", answer) == [
        Started(),
        TextDelta(text="Hi. Fox"),
        TranscriptTimed(segments=segments, words=WORDS, duration=1.5),
        Finished(reason="stop"),
        UsageReported(usage=Usage(audio_milliseconds=1500)),
    ]


def test_elevenlabs_answers() -> None:
    words = [
        {"text": "Hi.", "start": 0, "end": 0.5, "type": "word", "speaker_id": "speaker_0"},
        {"text": " ", "start": 0.5, "end": 0.5, "type": "spacing"},
        {"text": "Fox", "start": 0.5, "end": 1, "type": "word", "speaker_id": "speaker_0"},
    ]
    answer = {"text": "Hi. Fox", "language_code": "eng", "words": words}
    segments = [{**segment, "speaker": "A"} for segment in SEGMENTS]
    timing = TranscriptTimed(segments=segments, words=WORDS, language="eng", duration=1.0)
    assert read("elevenlabs", answer)[2:] == [
        timing,
        Finished(reason="stop"),
        UsageReported(usage=Usage(audio_milliseconds=1000)),
    ]
    longer = read("elevenlabs", {**answer, "audio_duration_secs": 2.5})
    assert longer[-1] == UsageReported(usage=Usage(audio_milliseconds=2500))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "answer", [b"<html>", b"[]", b"{}", b'{"text": 7}', b'{"results": {"channels": []}}', b'{"results": 1}', b"null"]
)
def test_what_cannot_be_read_fails(name: str, answer: bytes) -> None:
    [event] = read(name, answer)
    assert isinstance(event, Failed)
    assert event.error.status == 502


def test_an_error_with_status_200_is_told() -> None:
    [event] = read("openai", {"error": {"message": "audio too short", "code": 400}})
    assert isinstance(event, Failed)
    assert event.error.message == "audio too short"


def stream(*events: Any) -> list[Event]:
    """Return the events of a streamed answer in OpenAI's format."""
    frames = [event if isinstance(event, bytes) else json.dumps(event).encode() for event in events]
    return list(half_of("openai_stream").read_events(iter(frames)))


def test_a_stream_is_told_as_it_comes() -> None:
    segment = {"type": "transcript.text.segment", "id": "s", "start": 0, "end": 1, "speaker": "A", "text": "Hi"}
    done = {"type": "transcript.text.done", "text": "Hi", "usage": {"type": "tokens", "input_tokens": 9}}
    assert stream({"type": "transcript.text.delta", "delta": "Hi"}, b"", segment, done) == [
        Started(),
        TextDelta(text="Hi"),
        Waiting(),
        TranscriptTimed(segments=[segment]),
        UsageReported(usage=Usage(audio_input=9)),
        Finished(reason="stop"),
    ]
    assert stream({"type": "transcript.text.done", "text": "Hi"})[1] == TextDelta(text="Hi")


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (({"type": "transcript.text.delta", "delta": "Hi"},), "The provider's answer ended before it was complete"),
        ((b"{",), "The provider sent invalid JSON"),
        (({"error": {"message": "overloaded", "code": 503}},), "overloaded"),
    ],
)
def test_broken_streams_fail(events: tuple[Any, ...], words: str) -> None:
    last = stream(*events)[-1]
    assert isinstance(last, Failed)
    assert last.error.message == words


def test_an_answer_that_is_one_value_is_read_piece_by_piece() -> None:
    events = list(half_of("openai").read_events(iter([b'{"text"', b"", b': "Hi"}'])))
    assert events == [Waiting(), Started(), TextDelta(text="Hi"), Finished(reason="stop")]


def test_segments_end_with_sentences_and_speakers_and_are_not_long() -> None:
    words = [{"word": f"w{place}", "start": place * 1.0, "end": place + 1.0} for place in range(10)]
    assert [(one["start"], one["end"]) for one in segments_of(words)] == [(0.0, 7.0), (7.0, 10.0)]
    spoken = [{**word, "speaker": "AABB"[place]} for place, word in enumerate(words[:4])]
    assert [(one["speaker"], one["text"]) for one in segments_of(spoken)] == [("A", "w0 w1"), ("B", "w2 w3")]
    assert segments_of([]) == []
