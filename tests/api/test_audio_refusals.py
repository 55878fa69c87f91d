"""Refused transcript requests: by field, before any call or hold (section 4)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.audio_requests import transcribe
from tests.support.upstream import Caller, nothing_happened


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"file": None}, "file"),
        ({"data": b""}, "file"),
        ({"data": b"hello", "name": "a.txt"}, "file"),
        ({"data": b"\x89PNG\r\n\x1a\n" + b"\0" * 40}, "file"),
        ({"file": "words"}, "file"),
        ({"model": None}, "model"),
        ({"model": "m" * 513}, "model"),
        ({"language": "english please"}, "language"),
        ({"response_format": "xml"}, "response_format"),
        ({"response_format": "diarized_json"}, "response_format"),
        ({"response_format": "srt", "model": "listener-tokens"}, "response_format"),
        ({"response_format": "srt", "stream": "true"}, "response_format"),
        ({"temperature": "1.1"}, "temperature"),
        ({"temperature": "warm"}, "temperature"),
        ({"timestamp_granularities[]": ["word"]}, "timestamp_granularities"),
        ({"timestamp_granularities[]": ["day"], "response_format": "verbose_json"}, "timestamp_granularities[0]"),
        ({"include[]": ["logprobs"]}, "include"),
        ({"include[]": ["all"]}, "include[0]"),
        ({"stream": "maybe"}, "stream"),
        ({"chunking_strategy": "never"}, "chunking_strategy"),
        ({"chunking_strategy": '{"type": "server_vad", "threshold": 2}'}, "chunking_strategy.threshold"),
        ({"chunking_strategy[type]": "vad"}, "chunking_strategy.type"),
        ({"prompt": "a" * 100_001}, "prompt"),
        ({"to": "translations", "response_format": "diarized_json"}, "response_format"),
        ({"to": "translations", "model": "listener-tokens"}, "model"),
        ({"model": ["listener", "listener"]}, "model"),
    ],
)
def test_a_wrong_field_is_refused_by_name_and_changes_nothing(
    caller: Caller, fields: dict[str, Any], param: str
) -> None:
    refused = transcribe(caller, **fields)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), refused.content
    assert nothing_happened(caller)


def test_a_body_that_is_no_form_is_refused(caller: Caller) -> None:
    headers = {"Authorization": f"Bearer {caller.token}"}
    refused = caller.client.post("/v1/audio/transcriptions", {}, content_type="application/json", headers=headers)
    assert (refused.status_code, "multipart/form-data" in refused.json()["error"]["message"]) == (415, True)
    broken = "multipart/form-data; boundary=x"
    refused = caller.client.post("/v1/audio/transcriptions", b"--x\r\n", content_type=broken, headers=headers)
    assert refused.status_code == 400
    assert nothing_happened(caller)


def test_what_is_not_taken_is_told_and_not_sent(caller: Caller) -> None:
    response = transcribe(caller, chunking_strategy="auto", speakers="2")
    assert set(response["x-gateway-loss"].split(", ")) == {"chunking_strategy", "speakers"}
    assert {one["param"] for one in response.json()["metadata"]["warnings"]} == {"chunking_strategy", "speakers"}


def test_models_of_another_kind_are_refused_with_the_path_to_ask(caller: Caller) -> None:
    refused = transcribe(caller, model="echo")
    words = "echo is no transcription model; chat with it at /v1/chat/completions"
    assert refused.json()["error"]["message"] == words
    chat = caller.chat(model="listener")
    assert chat.json()["error"]["message"].endswith("ask for it at /v1/audio/transcriptions")
    assert nothing_happened(caller)
