"""Chat completions through the whole pipeline, over real HTTP to the upstream (section 4.7)."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import pytest

from apps.catalog import catalog_cache
from apps.kernel.valkey import generation
from apps.logs.models import RequestLog
from tests.support.upstream import Caller, chunks_of, settle_all


def test_the_answer_has_the_fields_of_the_specification(caller: Caller) -> None:
    response = caller.chat("hi [[sandbox usage=1000,200]]", headers={"x-request-id": "my-own.id_1"})
    assert response.status_code == 200
    assert response["x-request-id"] == "my-own.id_1"
    body = response.json()
    assert body["object"] == "chat.completion"
    assert body["model"] == "echo"
    assert body["choices"][0]["index"] == 0
    assert body["choices"][0]["message"]["role"] == "assistant"
    assert body["choices"][0]["message"]["content"] == "You said: hi"
    assert body["choices"][0]["finish_reason"] == "stop"
    assert {name: body["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")} == {
        "prompt_tokens": 1000,
        "completion_tokens": 200,
        "total_tokens": 1200,
    }
    assert body["usage"]["cost_usd_total"] == 0.00027
    metadata = body["metadata"]
    assert metadata["requested_model"] == "sandbox/echo"
    assert metadata["requested_provider"] == "sandbox"
    assert metadata["used_model"] == "echo"
    assert metadata["used_provider"] == "sandbox"
    assert metadata["underlying_used_model"] == "echo"
    assert metadata["routing"] == [
        {"provider": "sandbox", "model": "echo", "status_code": 200, "error_type": "none", "succeeded": True}
    ]


def test_the_upstream_is_sent_the_providers_name_and_credential_and_nothing_of_the_clients(caller: Caller) -> None:
    tag = uuid4().hex
    caller.chat(f"hi [[sandbox tag={tag}]]", user="u-1", headers={"x-source": "shop"})
    (sent,) = caller.sent(tag)
    assert sent["body"]["model"] == "echo"
    assert sent["body"]["user"] == "u-1"
    headers = {name.lower(): value for name, value in sent["headers"].items()}
    assert caller.token not in json.dumps(sent)
    assert not {"x-source", "x-api-key", "cookie"} & set(headers)


def test_x_api_key_authenticates_as_well(caller: Caller) -> None:
    response = caller.chat(headers={"Authorization": "", "x-api-key": caller.token})
    assert response.status_code == 200


def test_a_stream_has_role_first_and_usage_on_the_finish_chunk_unless_asked(caller: Caller) -> None:
    chunks = chunks_of(caller.chat("one two [[sandbox chunks=3 usage=10,5]]", stream=True))
    assert chunks[-1] == "[DONE]"
    assert {chunk["object"] for chunk in chunks[:-1]} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks[:-1]}) == 1
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks[:-1]) == "You said: one two"
    last = chunks[-2]
    assert last["choices"][0]["finish_reason"] == "stop"
    assert (last["usage"]["total_tokens"], last["usage"]["cost_usd_total"]) == (15, 0.0000045)
    assert last["metadata"]["used_provider"] == "sandbox"


def test_a_stream_told_to_include_usage_has_it_in_a_chunk_of_its_own(caller: Caller) -> None:
    chunks = chunks_of(caller.chat("x", stream=True, stream_options={"include_usage": True}))
    assert chunks[-2]["choices"] == []
    assert chunks[-2]["usage"]["total_tokens"] > 0
    assert all("metadata" not in chunk for chunk in chunks[:-2])


def test_a_stream_told_not_to_has_no_usage_at_all(caller: Caller) -> None:
    chunks = chunks_of(caller.chat("x", stream=True, stream_options={"include_usage": False}))
    assert all("usage" not in chunk or chunk["usage"] is None for chunk in chunks[:-1])
    settle_all()
    assert RequestLog.objects.get().cost > 0


def test_any_openai_compatible_address_serves_by_environment(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str, str]] = []

    class Upstream(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append((self.path, self.headers["Authorization"], body["model"]))
            answer = json.dumps(
                {
                    "id": "chatcmpl-1",
                    "object": "chat.completion",
                    "created": 1,
                    "model": "gpt-4o-mini-2024-07-18",
                    "choices": [
                        {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
                    ],
                    "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100},
                }
            ).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/some/v1/")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-first, sk-second")
        load_catalog_anew()
        response = caller.chat(model="openai/gpt-4o-mini")
        server.shutdown()
    assert response.status_code == 200, response.content
    ((path, key, model),) = seen
    assert (path, model) == ("/some/v1/chat/completions", "gpt-4o-mini")
    # Which of several credentials is luck.
    assert key in {"Bearer sk-first", "Bearer sk-second"}
    body = response.json()
    assert (body["model"], body["metadata"]["used_provider"]) == ("gpt-4o-mini", "openai")
    # 0.15 and 0.60 USD per million tokens.
    assert body["usage"]["cost_usd_total"] == 0.00021


def load_catalog_anew() -> None:
    """Make this process read the environment's addresses again."""
    catalog_cache.refresh(generation.new_generation_token())
    generation.bump(generation.CATALOG)
