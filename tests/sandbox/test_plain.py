"""Plain replies: their exact words."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests

from tests.sandbox.conftest import Upstream


def test_answers_with_exactly_these_bytes(upstream: Upstream) -> None:
    first, second = upstream.chat("hello there"), upstream.chat("hello there")
    assert first.content == second.content
    assert first.headers["content-type"] == "application/json"
    reply = first.json()
    identity = reply["id"].removeprefix("chatcmpl-")
    assert len(identity) == 24
    assert first.headers["x-request-id"] == f"req_{identity}"
    assert (first.headers["x-ratelimit-limit-requests"], first.headers["x-ratelimit-remaining-requests"]) == (
        "10000",
        "9999",
    )
    assert reply == {
        "id": f"chatcmpl-{identity}",
        "object": "chat.completion",
        "created": 1767225600,
        "model": "echo",
        "system_fingerprint": "fp_sandbox",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "You said: hello there", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 6,
            "total_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        },
    }
    assert upstream.chat("hello here").json()["id"] != reply["id"]


def test_answers_the_last_user_message(upstream: Upstream) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "You said: one"},
        {"role": "user", "content": "two"},
    ]
    assert upstream.text(messages) == "You said: two"


def test_counts_attachments(upstream: Upstream) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    file = {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA"}}
    reply = upstream.chat([{"role": "user", "content": [{"type": "text", "text": "look"}, image, image, file]}]).json()
    assert reply["choices"][0]["message"]["content"] == "You said: look (2 images, 1 file)"
    assert reply["usage"]["prompt_tokens"] == 1 + 3 * 85


def test_counts_tokens_as_documented(upstream: Upstream) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "weather", "description": "Of a city", "parameters": schema}}
    messages = [{"role": "system", "content": "éé"}, {"role": "user", "content": "12345"}]
    usage = upstream.chat(messages, tools=[tool]).json()["usage"]
    assert len(json.dumps(schema, separators=(",", ":"))) == 57
    assert usage["prompt_tokens"] == 1 + 2 + 2 + 3 + 15
    assert usage["completion_tokens"] == 4  # "You said: 12345"


def test_cuts_at_max_tokens(upstream: Upstream) -> None:
    limits: list[dict[str, Any]] = [{"max_tokens": 3}, {"max_completion_tokens": 3}]
    for limit in limits:
        reply = upstream.chat("hello there", **limit).json()
        assert reply["choices"][0]["message"]["content"] == "You said: he"
        assert reply["choices"][0]["finish_reason"] == "length"
        assert reply["usage"]["completion_tokens"] == 3
    assert upstream.chat("hello there", max_tokens=6).json()["choices"][0]["finish_reason"] == "stop"


def test_reasoning_counts_towards_max_tokens(upstream: Upstream) -> None:
    reply = upstream.chat("hello", model="reasoner:reasoning=1", max_tokens=3).json()
    message = reply["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("thought-1", "")
    assert reply["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(("stop", "text"), [("there", "You said: hello "), ([" he", "said"], "You "), ("zebra", None)])
def test_stops_before_a_stop_sequence(upstream: Upstream, stop: Any, text: str | None) -> None:
    reply = upstream.chat("hello there", stop=stop).json()
    assert reply["choices"][0]["message"]["content"] == (text or "You said: hello there")
    assert reply["choices"][0]["finish_reason"] == "stop"


def test_gives_as_many_choices_as_asked(upstream: Upstream) -> None:
    reply = upstream.chat("hello", n=3).json()
    said = [(choice["index"], choice["message"]["content"]) for choice in reply["choices"]]
    assert said == [(0, "You said: hello"), (1, "You said: hello (choice 2)"), (2, "You said: hello (choice 3)")]
    assert reply["usage"]["completion_tokens"] == 4 + 7 + 7


@pytest.mark.parametrize(("effort", "words"), [("minimal", 4), ("low", 8), ("medium", 16), ("high", 32), ("xhigh", 64)])
def test_thinks_as_hard_as_asked(upstream: Upstream, effort: str, words: int) -> None:
    for asked in ({"reasoning_effort": effort}, {"reasoning": {"effort": effort}}):
        reply = upstream.chat("hello", **asked).json()
        thoughts = reply["choices"][0]["message"]["reasoning_content"]
        assert thoughts == " ".join(f"thought-{number}" for number in range(1, words + 1))
        tokens = -(-len(thoughts) // 4)
        assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] == tokens
        assert reply["usage"]["completion_tokens"] == tokens + 4


def test_reasoning_in_the_other_field(upstream: Upstream) -> None:
    message = upstream.chat("hello [[sandbox reasoning=2 reasoning-field=reasoning]]").json()["choices"][0]["message"]
    assert message["reasoning"] == "thought-1 thought-2"
    assert "reasoning_content" not in message


@pytest.mark.parametrize(
    ("directives", "text"),
    [
        ("words=3", "word-1 word-2 word-3"),
        ("kb=2", "sandbox " * 256),
        ("verbatim", "hello"),
        ("empty", ""),
        ("json", '{"answer":"You said: hello"}'),
    ],
)
def test_says_what_the_scenario_says(upstream: Upstream, directives: str, text: str) -> None:
    assert upstream.text(f"hello [[sandbox {directives}]]") == text
    assert upstream.text("hello", model=f"echo:{directives}") == text
    assert upstream.text("hello", headers={"x-sandbox": directives}) == text


def test_the_header_wins_over_the_message_and_the_message_over_the_model(upstream: Upstream) -> None:
    model, message, header = "echo:words=1:usage=1,1", "[[sandbox words=2; usage=2,2]]", {"x-sandbox": "words=3"}
    reply = upstream.chat(message, model=model, headers=header).json()
    assert reply["choices"][0]["message"]["content"] == "word-1 word-2 word-3"
    assert reply["usage"]["prompt_tokens"] == 2


def test_reads_marks_in_system_messages_and_only_the_last_user_message(upstream: Upstream) -> None:
    messages = [
        {"role": "system", "content": "Be brief. [[sandbox words=2]]"},
        {"role": "user", "content": "one [[sandbox status=503]]"},
        {"role": "user", "content": "two"},
    ]
    assert upstream.text(messages) == "word-1 word-2"


def test_reports_the_usage_of_the_scenario(upstream: Upstream) -> None:
    usage = upstream.chat("hello", model="echo:usage=1000,200,300,50,7").json()["usage"]
    assert usage == {
        "prompt_tokens": 1000,
        "completion_tokens": 200,
        "total_tokens": 1200,
        "prompt_tokens_details": {"cached_tokens": 300, "audio_tokens": 0, "cache_write_tokens": 7},
        "completion_tokens_details": {"reasoning_tokens": 50, "audio_tokens": 0},
    }


def test_reports_no_usage(upstream: Upstream) -> None:
    assert "usage" not in upstream.chat("hello", model="no-usage").json()


def test_the_benchmark_model_answers_a_fixed_kilobyte(upstream: Upstream) -> None:
    first, second = upstream.chat("hello", model="echo-fast"), upstream.chat("anything else", model="echo-fast")
    assert first.content == second.content
    reply = first.json()
    assert reply["choices"][0]["message"]["content"] == "sandbox " * 128
    assert (reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"]) == (250, 256)
    assert upstream.text("hello", model="echo-fast", headers={"x-sandbox": "kb=2"}) == "sandbox " * 256


@pytest.mark.parametrize("token", ["", "Bearer", "Bearer ", "Basic abc", "Bearer invalid"])
def test_a_wrong_token_is_401_in_openai_s_shape(upstream: Upstream, token: str) -> None:
    for model in ("echo", "echo-fast"):
        response = upstream.chat("hello", model=model, headers={"authorization": token})
        assert response.status_code == 401
        assert response.json() == {
            "error": {
                "message": "Incorrect API key provided.",
                "type": "invalid_request_error",
                "param": None,
                "code": "invalid_api_key",
            }
        }
    assert requests.get(f"{upstream.url}/v1/models", headers={"authorization": token}, timeout=5).status_code == 401


def test_an_unknown_model_is_404(upstream: Upstream) -> None:
    response = upstream.chat("hello", model="sandbox/echo")
    assert response.status_code == 404
    assert response.json()["error"] == {
        "message": "The model `sandbox/echo` does not exist or you do not have access to it.",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"n": "two"}, "n"),
        ({"model": None}, "model"),
        ({"reasoning_effort": "heroic"}, "reasoning_effort"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"tool_choice": {"type": "function", "function": {"name": "nobody"}}}, "tool_choice"),
    ],
)
def test_a_malformed_request_is_400_naming_the_field(upstream: Upstream, body: dict[str, Any], param: str) -> None:
    response = upstream.chat("hello", **body)
    assert response.status_code == 400
    assert (response.json()["error"]["type"], response.json()["error"]["param"]) == ("invalid_request_error", param)


def test_a_missing_field_is_400_naming_it(upstream: Upstream) -> None:
    headers = {"authorization": "Bearer any"}
    url = f"{upstream.url}/v1/chat/completions"
    response = requests.post(url, json={"model": "echo"}, headers=headers, timeout=5)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages")
    response = requests.post(url, data=b"{", headers=headers, timeout=5)
    assert response.status_code == 400
    assert response.json()["error"]["message"] == "We could not parse the JSON body of your request."


@pytest.mark.parametrize(
    "directives", ["latncy=5", "latency=soon", "status=700", "p=2", "hang=later", "cut hang=body", "usage=5"]
)
def test_a_scenario_that_makes_no_sense_is_400(upstream: Upstream, directives: str) -> None:
    response = upstream.chat(f"hello [[sandbox {directives}]]")
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_scenario"
