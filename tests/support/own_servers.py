"""Servers of models that an organization runs itself, scripted: what each kind answers about its models, and chats.

The answers are those of the servers' own documentation, shortened.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

import pytest

# By path: the answer as JSON, or a status and a body. A function gets the body of the request.
Answers = dict[str, Any]

VLLM: Answers = {
    "/v1/models": {
        "object": "list",
        "data": [
            {
                "id": "Qwen/Qwen3-8B",
                "object": "model",
                "owned_by": "vllm",
                "root": "Qwen/Qwen3-8B",
                "max_model_len": 40960,
            }
        ],
    }
}
SGLANG: Answers = {
    "/v1/models": {
        "object": "list",
        "data": [{"id": "default", "object": "model", "owned_by": "sglang", "max_model_len": 131072}],
    }
}
_SHOWN: dict[str, Any] = {
    "llama3.2:latest": {
        "parameters": 'num_ctx                        8192\nstop                           "<|eot_id|>"',
        "model_info": {"general.architecture": "llama", "llama.context_length": 131072},
        "capabilities": ["completion", "tools"],
    },
    "nomic-embed-text:latest": {
        "model_info": {"general.architecture": "nomic-bert", "nomic-bert.context_length": 2048},
        "capabilities": ["embedding"],
    },
}
OLLAMA: Answers = {
    "/v1/models": {
        "object": "list",
        "data": [{"id": name, "object": "model", "owned_by": "library"} for name in _SHOWN],
    },
    "/api/tags": {"models": [{"name": name, "model": name, "size": 2019393189} for name in _SHOWN]},
    "/api/show": lambda asked: _SHOWN[asked["model"]],
    "/api/ps": {"models": [{"name": "nomic-embed-text:latest", "size_vram": 593741824, "context_length": 1024}]},
}
LLAMA_CPP: Answers = {
    "/v1/models": {
        "object": "list",
        "models": [{"name": "gemma-3-4b-it-Q4_K_M.gguf", "model": "gemma-3-4b-it-Q4_K_M.gguf"}],
        "data": [
            {
                "id": "gemma-3-4b-it-Q4_K_M.gguf",
                "object": "model",
                "owned_by": "llamacpp",
                "meta": {"vocab_type": 1, "n_ctx_train": 131072, "n_embd": 2560},
            }
        ],
    },
    "/props": {
        "default_generation_settings": {"id": 0, "n_ctx": 4096, "params": {"temperature": 0.8}},
        "total_slots": 2,
        "modalities": {"vision": True, "audio": False},
    },
}
LM_STUDIO: Answers = {
    "/v1/models": {"object": "list", "data": [{"id": "qwen2-vl-7b-instruct", "object": "model"}, {"id": "bge-m3"}]},
    "/api/v0/models": {
        "object": "list",
        "data": [
            {
                "id": "qwen2-vl-7b-instruct",
                "type": "vlm",
                "state": "loaded",
                "max_context_length": 32768,
                "loaded_context_length": 4096,
                "capabilities": ["tool_use"],
            },
            {"id": "bge-m3", "type": "embeddings", "state": "not-loaded", "max_context_length": 8192},
        ],
    },
}
TGI: Answers = {
    "/v1/models": (404, b""),
    "/info": {"model_id": "mistralai/Mistral-7B-Instruct-v0.3", "max_input_tokens": 4095, "max_total_tokens": 4096},
}


class Asked(NamedTuple):
    """A request that a server got; `body` is None without one."""

    method: str
    path: str
    authorization: str | None
    body: Any


class OwnServer:
    """A server of models: its answers, which a test sets, and what it was asked."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.port = server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self.answers: Answers = {}
        self.asked: list[Asked] = []
        self._server = server
        self._thread = Thread(target=server.serve_forever, args=(0.01,))
        self._thread.start()

    def kill(self) -> None:
        """End it: connections to it are refused from then on."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def times_asked(self, path: str) -> int:
        """Return how often a path was asked."""
        return self.paths.count(path)

    @property
    def paths(self) -> list[str]:
        """The paths that were asked, in order."""
        return [one.path for one in self.asked]

    def answer(self, path: str, body: Any) -> tuple[int, bytes]:
        """Return the status and body of an answer."""
        stated = self.answers.get(path, (404, b'{"error": "not found"}'))
        if callable(stated):
            stated = stated(body)
        return stated if isinstance(stated, tuple) else (200, json.dumps(stated).encode())


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: Any) -> None:
        server: Any = self.server
        served: OwnServer = server.served
        served.asked.append(Asked(self.command, self.path, self.headers["Authorization"], body))
        status, content = served.answer(self.path, body)
        self.send_response(status)
        kind = "text/event-stream" if content.startswith(b"data:") else "application/json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    served: OwnServer

    def handle_error(self, *_: Any) -> None:
        """Say nothing: a caller that no longer waits has gone."""


@contextmanager
def serve(port: int = 0) -> Iterator[OwnServer]:
    """Run a server of models."""
    server = _Server(("127.0.0.1", port), _Handler)
    server.served = OwnServer(server)
    try:
        yield server.served
    finally:
        server.served.kill()


@pytest.fixture
def own_server(settings: Any) -> Iterator[OwnServer]:
    """A server of models at a private address, which the operator allows."""
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = True
    with serve() as server:
        yield server


def chat_answer(message: dict[str, Any], usage: dict[str, int] | None = None) -> dict[str, Any]:
    """Return a whole answer to a chat; without `usage`, as some servers leave it out."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    answer: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    return {**answer, "choices": [choice], **({"usage": usage} if usage else {})}


def chat_stream(*deltas: dict[str, Any], usage: dict[str, int] | None = None) -> tuple[int, bytes]:
    """Return a streamed answer to a chat."""
    frame: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    frames: list[dict[str, Any]] = [{**frame, "choices": [choice]} for choice in choices]
    if usage:
        frames.append({**frame, "choices": [], "usage": usage})
    lines = [f"data: {json.dumps(one)}\n\n" for one in frames]
    return 200, ("".join(lines) + "data: [DONE]\n\n").encode()
