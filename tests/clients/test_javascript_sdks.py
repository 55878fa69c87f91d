"""OpenAI's, Anthropic's and Ollama's own clients for JavaScript, each as its users write a program."""

from __future__ import annotations

import pytest

from tests.clients import npm
from tests.clients.gateway import Behind, Gateway
from tests.clients.test_google_scripts import run_script

pytestmark = [pytest.mark.stack, pytest.mark.agents, pytest.mark.timeout(600)]


@pytest.mark.parametrize("client", ["chat", "responses"])
def test_openais_client_for_javascript(
    gateway: Gateway, behind: Behind, client: str, request: pytest.FixtureRequest
) -> None:
    folder = npm.installed(npm.OPENAI, request.config)
    assert run_script("openai.mjs", folder, gateway, behind, FORMAT=client) == {
        "text": "You said: hello",
        "streamed": "You said: one two",
        "tokens": True,
        "answered": "look answered: Rome is fine",
        "person": "Ada",
        "listed": True,
        "error": [True, "model_not_found"],
    }


def test_anthropics_client_for_javascript(gateway: Gateway, behind: Behind, request: pytest.FixtureRequest) -> None:
    folder = npm.installed(npm.ANTHROPIC, request.config)
    assert run_script("anthropic.mjs", folder, gateway, behind) == {
        "text": "You said: hello",
        "streamed": "You said: one two",
        "finish": "end_turn",
        "tokens": True,
        "answered": "look answered: Rome is fine",
        "counted": True,
        "listed": True,
        "error": [True, 400],
    }


def test_ollamas_client_for_javascript(gateway: Gateway, behind: Behind, request: pytest.FixtureRequest) -> None:
    folder = npm.installed(npm.OLLAMA, request.config)
    assert run_script("ollama.mjs", folder, gateway, behind) == {
        "text": "You said: hello",
        "finish": "stop",
        "tokens": True,
        "streamed": "You said: one two",
        "done": True,
        "answered": "look answered: Rome is fine",
        "person": {"name": "Ada"},
        "prompted": "You said: hello",
        "listed": True,
        "error": ["ResponseError", 404],
    }
