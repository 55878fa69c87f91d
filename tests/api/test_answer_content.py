"""Answers in log rows: calls of tools, choices, images and audio, in every client format, whole and streamed."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest

from apps.kernel.ids import new_id
from apps.logs.answers import read_medium
from apps.logs.models import RequestLog
from tests.api.test_log_content import keep, logged
from tests.support import audio_requests
from tests.support.guardrails_in_force import forbid, guard
from tests.support.image_requests import generate
from tests.support.upstream import Caller, settle_all

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
QUESTION = 'weather in "Paris"?'


def ask(caller: Caller, path: str, text: str = QUESTION, *, stream: bool = False, model: str = "sandbox/tools") -> Any:
    """Ask with the tool `get_weather` in the format of an API; return the body of the answer."""
    headers = {"Authorization": f"Bearer {caller.token}"}
    body: dict[str, Any] = {"model": model}
    if "generate" in path.lower():
        declared = [{"name": "get_weather", "parameters": CITY}]
        body = {
            "contents": [{"role": "user", "parts": [{"text": text}]}],
            "tools": [{"functionDeclarations": declared}],
        }
        path = f"/v1beta/models/{model}:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}"
    elif path == "/v1/responses":
        body |= {"input": text, "tools": [{"type": "function", "name": "get_weather", "parameters": CITY}]}
    elif path == "/v1/messages":
        body |= {"max_tokens": 100, "messages": [{"role": "user", "content": text}]}
        body["tools"] = [{"name": "get_weather", "input_schema": CITY}]
    else:
        body["messages"] = [{"role": "user", "content": text}]
        body["tools"] = [{"type": "function", "function": {"name": "get_weather", "parameters": CITY}}]
    if stream and "contents" not in body:
        body["stream"] = True
    answer = caller.client.post(path, body, content_type="application/json", headers=headers)
    assert answer.status_code == 200, answer.content
    return b"".join(answer.streaming_content) if answer.streaming else answer.content


def read_over_api(caller: Caller, path: str, token: str = "") -> Any:
    """Read a path of the log with the caller's key, or another one."""
    return caller.client.get(path, headers={"x-api-key": token or caller.token})


PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "generateContent")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("path", PATHS)
def test_calls_of_tools_are_in_the_log_whichever_the_format(caller: Caller, path: str, stream: bool) -> None:
    keep(caller, "retain")
    ask(caller, path, stream=stream)
    entry = logged(caller)
    [call] = entry["toolCalls"]
    assert call == {"id": call["id"], "name": "get_weather", "arguments": '{"city":"Paris"}'}
    assert call["id"]
    assert entry["toolCallCounts"] == {"get_weather": 1}
    assert [entry[name] for name in ("content", "refusal", "choices", "citations", "media")] == [None] * 5


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("level", "counts"), [("metadata", {"get_weather": 1}), ("none", None)])
def test_without_content_names_and_counts_of_tools_are_kept_at_most(
    caller: Caller, level: str, counts: Any, stream: bool
) -> None:
    keep(caller, level)
    ask(caller, "/v1/chat/completions", stream=stream)
    entry = logged(caller)
    assert entry["toolCallCounts"] == counts
    assert [entry[name] for name in ("content", "toolCalls", "choices", "media")] == [None] * 4
    assert "Paris" not in str(entry)


def test_the_text_of_a_plain_answer_is_stored_once(caller: Caller) -> None:
    keep(caller, "retain")
    caller.chat("hello [[sandbox verbatim]]")
    settle_all()
    row = RequestLog.objects.values().get()
    filled = ("refusal", "tool_calls", "tool_call_counts", "choices", "citations", "media", "media_data")
    assert {name: row[name] for name in filled} == dict.fromkeys(filled)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_every_choice_is_in_the_log_and_its_text_is_stored_once(caller: Caller, stream: bool) -> None:
    keep(caller, "retain")
    answer = caller.chat("Grüße 🌍 [[sandbox verbatim]]", n=2, stream=stream)
    assert b"".join(answer) if stream else answer.json()
    entry = logged(caller)
    texts = [choice["content"] for choice in entry["choices"]]
    assert entry["content"] == "\n".join(texts)
    assert [text.strip() for text in texts] == ["Grüße 🌍"] * 2
    assert [(one["index"], one["finishReason"], one["refusal"]) for one in entry["choices"]] == [
        (0, "stop", None),
        (1, "stop", None),
    ]
    assert "Grüße" not in str(RequestLog.objects.get().choices)


def test_masked_values_stay_masked_in_the_calls_of_the_log(caller: Caller) -> None:
    keep(caller, "retain")
    guard(caller)
    forbid(caller, "hushhush", action="redact")
    ask(caller, "/v1/chat/completions", 'weather in "hushhush"')
    entry = logged(caller)
    assert [call["arguments"] for call in entry["toolCalls"]] == ['{"city":"[TERM_1]"}']
    assert "hushhush" not in str(entry)


def test_generated_images_are_kept_encrypted_and_described(caller: Caller) -> None:
    keep(caller, "retain")
    data = [b64decode(one["b64_json"]) for one in generate(caller, "a cat", n=2).json()["data"]]
    entry = logged(caller)
    assert entry["media"] == [
        {"kind": "image", "contentType": "image/png", "size": len(data[0]), "stored": True},
        {"kind": "image", "contentType": "image/png", "choice": 1, "size": len(data[1]), "stored": True},
    ]
    assert entry["choices"] is None
    for number, one in enumerate(data):
        sent = read_over_api(caller, f"/logs/{entry['id']}/media/{number}")
        assert (sent.status_code, sent.content, sent["Content-Type"]) == (200, one, "image/png")
    for place in (f"{entry['id']}/media/2", "nonsense/media/0", f"{new_id()}/media/0"):
        refused = read_over_api(caller, f"/logs/{place}")
        message = "There is no such image or audio in the log; it may be past its retention"
        assert (refused.status_code, refused.json()) == (404, {"error": True, "status": 404, "message": message})
    assert read_over_api(caller, f"/logs/{entry['id']}/media/0", token="gw_other").status_code == 401
    row = RequestLog.objects.get()
    read = [read_medium(row.id, row.media, row.media_data, number) for number in (0, 1, 2)]
    assert read == [("image/png", data[0]), ("image/png", data[1]), None]
    assert "media_data" not in entry
    assert "mediaData" not in entry


def test_speech_is_kept_encrypted_and_described(caller: Caller) -> None:
    keep(caller, "retain")
    answer = audio_requests.speak(caller, response_format="wav")
    data = b"".join(answer.streaming_content) if answer.streaming else answer.content
    [described] = logged(caller)["media"]
    assert described == {"kind": "audio", "contentType": "audio/wav", "size": len(data), "stored": True}
    row = RequestLog.objects.get()
    assert read_medium(row.id, row.media, row.media_data, 0) == ("audio/wav", data)


@pytest.mark.parametrize("level", ["metadata", "none"])
def test_without_content_no_image_is_kept(caller: Caller, level: str) -> None:
    keep(caller, level)
    assert generate(caller, "a cat").status_code == 200
    settle_all()
    row = RequestLog.objects.get()
    assert (row.media, row.media_data) == (None, None)
