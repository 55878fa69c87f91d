"""Models that an organization's own server lists: by each kind of server, and from servers that answer badly."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from apps.kernel.errors import InvalidRequest
from apps.keys import model_discovery
from apps.keys.model_discovery import FoundModels, complete_url, find_models
from apps.keys.own_models import MAX_MODELS
from apps.keys.ssrf_guard import resolve_safe_address
from tests.support import own_servers
from tests.support.own_servers import Answers, OwnServer, own_server

__all__ = ["own_server"]


def found_at(server: OwnServer, kind: str = "openai", token: str = "") -> FoundModels:
    """Return the models that are found at a server."""
    return find_models(resolve_safe_address(f"{server.url}/v1", uuid4()), token, kind)


@pytest.mark.parametrize(
    ("kind", "answers", "models"),
    [
        ("vllm", own_servers.VLLM, [{"name": "Qwen/Qwen3-8B", "contextLength": 40960}]),
        ("sglang", own_servers.SGLANG, [{"name": "default", "contextLength": 131072}]),
        (
            "ollama",
            own_servers.OLLAMA,
            [
                {"name": "llama3.2:latest", "contextLength": 8192, "capabilities": ["tools"]},
                {"name": "nomic-embed-text:latest", "contextLength": 1024, "capabilities": ["embedding"]},
            ],
        ),
        ("llamacpp", own_servers.LLAMA_CPP, [{"name": "gemma-3-4b-it-Q4_K_M.gguf", "contextLength": 4096}]),
        (
            "lmstudio",
            own_servers.LM_STUDIO,
            [
                {"name": "qwen2-vl-7b-instruct", "contextLength": 4096, "capabilities": ["tools", "vision"]},
                {"name": "bge-m3", "contextLength": 8192, "capabilities": ["embedding"]},
            ],
        ),
    ],
)
def test_each_kind_of_server(own_server: OwnServer, kind: str, answers: Answers, models: list[Any]) -> None:
    own_server.answers = answers
    assert found_at(own_server, kind) == FoundModels(models)


def test_tgi_without_a_list_has_the_model_of_its_info(own_server: OwnServer) -> None:
    own_server.answers = own_servers.TGI
    assert found_at(own_server, "tgi") == FoundModels(
        [{"name": "mistralai/Mistral-7B-Instruct-v0.3", "contextLength": 4096}],
        "The server answered 404 instead of a list of models",
    )


def test_a_server_without_credential_gets_no_header(own_server: OwnServer) -> None:
    own_server.answers = own_servers.OLLAMA
    found_at(own_server, "ollama")
    found_at(own_server, "vllm", token="sk-own")
    assert [one.authorization for one in own_server.asked] == [None] * 5 + ["Bearer sk-own"]
    assert own_server.asked[2].body == {"model": "llama3.2:latest"}


def test_a_model_that_ollama_does_not_describe_is_listed_without_context(own_server: OwnServer) -> None:
    own_server.answers = {**own_servers.OLLAMA, "/api/show": (500, b"")}
    assert found_at(own_server, "ollama") == FoundModels(
        [{"name": "llama3.2:latest"}, {"name": "nomic-embed-text:latest"}], "The server answered 500 at /api/show"
    )


@pytest.mark.parametrize(
    "entry",
    [
        *("a model", 7, None, [], {}),
        *({"id": name} for name in (None, 7, "", "x" * 201, "a\nb", "a\0b", " a", {"a": 1})),
    ],
)
def test_an_entry_without_a_usable_name_is_left_out(own_server: OwnServer, entry: Any) -> None:
    own_server.answers = {"/v1/models": {"data": [entry, {"id": "good"}]}}
    assert found_at(own_server) == FoundModels([{"name": "good"}])


@pytest.mark.parametrize("context", [0, -1, True, "4096", 1.5, None, [], 10**9, 10**90])
def test_a_context_that_is_none_is_unknown(own_server: OwnServer, context: Any) -> None:
    own_server.answers = {"/v1/models": {"data": [{"id": "good", "max_model_len": context, "meta": context}]}}
    assert found_at(own_server).models == [{"name": "good"}]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"not JSON", "The server's answer at /models cannot be read"),
        (b"[" * 100_000, "The server's answer at /models cannot be read"),
        (b'{"data": [' + b"1," * 500_000 + b"1]}", "The server's answer at /models cannot be read"),
        (b'{"data": "' + b"x" * 10_000_000 + b'"}', "The server's answer at /models is longer than 4 MB"),
        *((json.dumps(one).encode(), "") for one in (None, 7, "models", [], {}, {"data": None}, {"data": {"a": 1}})),
    ],
)
def test_a_list_that_is_none_is_no_error(own_server: OwnServer, body: bytes, problem: str) -> None:
    own_server.answers = {"/v1/models": (200, body)}
    assert found_at(own_server) == FoundModels([], problem)


def test_ten_thousand_models_are_cut_and_told(own_server: OwnServer) -> None:
    own_server.answers = {"/v1/models": {"data": [{"id": f"model-{number}"} for number in range(10_000)]}}
    found = found_at(own_server)
    assert [found.models[0]["name"], found.models[-1]["name"], len(found.models)] == [
        "model-0",
        "model-1999",
        MAX_MODELS,
    ]
    assert found.problem == "The server lists 10000 models; the first 2000 are kept"


def test_ollama_is_asked_about_a_hundred_models_at_most(own_server: OwnServer) -> None:
    names = [{"id": f"model-{number}"} for number in range(150)]
    own_server.answers = {"/v1/models": {"data": names}, "/api/tags": {}, "/api/show": {}, "/api/ps": {}}
    assert len(found_at(own_server, "ollama").models) == 150
    assert own_server.paths.count("/api/show") == model_discovery.MAX_SHOWN


@pytest.mark.parametrize("answers", [{"/api/tags": 7}, {"/api/tags": {"models": [{"name": 7}]}}])
@pytest.mark.parametrize(
    "shown", [7, [], {}, {"model_info": 7}, {"model_info": {"a.context_length": "x"}, "parameters": 7}]
)
def test_odd_descriptions_of_ollama_say_nothing(own_server: OwnServer, answers: Answers, shown: Any) -> None:
    own_server.answers = {"/v1/models": {"data": [{"id": "good"}]}, **answers, "/api/show": shown, "/api/ps": shown}
    assert found_at(own_server, "ollama") == FoundModels([{"name": "good"}])


@pytest.mark.parametrize("kind", ["llamacpp", "lmstudio", "tgi"])
@pytest.mark.parametrize("answer", [7, [], {}, {"data": 7}, {"default_generation_settings": 7, "n_ctx": "x"}])
def test_odd_properties_say_nothing(own_server: OwnServer, kind: str, answer: Any) -> None:
    own_server.answers = {"/v1/models": {"data": [{"id": "good"}]}, **dict.fromkeys(own_server_paths(kind), answer)}
    assert found_at(own_server, kind) == FoundModels([{"name": "good"}])


def own_server_paths(kind: str) -> list[str]:
    """Return the path that a kind of server is asked at beyond its list."""
    return {"llamacpp": ["/props"], "lmstudio": ["/api/v0/models"], "tgi": ["/info"]}[kind]


def test_a_refusal_is_raised_with_its_words(own_server: OwnServer) -> None:
    own_server.answers = {"/v1/models": (401, b'{"error": {"message": "No key sk-own-secret"}}')}
    with pytest.raises(InvalidRequest) as error:
        found_at(own_server, "ollama", "sk-own-secret")
    assert error.value.message == "The provider key was not accepted: the provider answered 401: No key ..."
    assert own_server.paths == ["/v1/models"]


@pytest.mark.parametrize(
    ("given", "kind", "completed"),
    [
        ("http://gpu:11434", "ollama", "http://gpu:11434/v1"),
        ("http://gpu:11434/", "ollama", "http://gpu:11434/v1"),
        ("http://gpu:11434/v1/", "ollama", "http://gpu:11434/v1"),
        ("http://gpu/openai", "vllm", "http://gpu/openai"),
        ("https://models.example.com", "openai", "https://models.example.com"),
    ],
)
def test_a_bare_address_of_a_known_kind_gets_its_path(given: str, kind: str, completed: str) -> None:
    assert complete_url(given, kind) == completed
