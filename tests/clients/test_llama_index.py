"""LlamaIndex, in the mode for servers that speak as OpenAI's does: answers, streams, functions, structured answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients import npm, pypi
from tests.clients.gateway import EVERY_FORMAT, Behind, Gateway

pytestmark = [pytest.mark.stack, pytest.mark.agents, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).parent / "scripts" / "ask_llama_index.py"


@pytest.mark.parametrize("behind", EVERY_FORMAT, ids=[behind.format for behind in EVERY_FORMAT])
def test_llama_index(gateway: Gateway, behind: Behind, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    python = pypi.installed(pypi.LLAMA_INDEX, request.config)
    said = npm.run(
        [python, SCRIPT],
        home=tmp_path,
        folder=tmp_path,
        GATEWAY_URL=gateway.url,
        GATEWAY_KEY=gateway.key,
        MODEL=behind.model,
    )
    assert json.loads(said.splitlines()[-1]) == {
        "text": "You said: hello",
        "streamed": "You said: one two",
        "call": ["look", {"city": "Rome"}],
        "answered": "look answered: Rome is fine",
        "person": "Ada",
    }
