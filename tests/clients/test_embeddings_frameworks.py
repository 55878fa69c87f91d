"""Embeddings of frameworks that bring environments of their own: LlamaIndex's, and LangChain's for Google."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients import npm, pypi
from tests.clients.gateway import Gateway
from tests.clients.test_embeddings import TEXTS, vectors

pytestmark = [pytest.mark.stack, pytest.mark.agents, pytest.mark.timeout(600)]

SCRIPTS = Path(__file__).parent / "scripts"


def told_by(python: Path, script: str, gateway: Gateway, home: Path) -> Any:
    """Return what a script tells of the vectors that it got."""
    asked = {"GATEWAY_URL": gateway.url, "GATEWAY_KEY": gateway.key, "TEXTS": json.dumps(TEXTS)}
    return json.loads(npm.run([python, SCRIPTS / script], home=home, folder=home, **asked).splitlines()[-1])


def test_llama_index(gateway: Gateway, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    python = pypi.installed(pypi.LLAMA_INDEX_EMBEDDINGS, request.config)
    told = told_by(python, "ask_llama_index_embeddings.py", gateway, tmp_path)
    assert told == {"texts": vectors(), "text": vectors()[0], "query": vectors()[0]}


def test_langchain_for_google(gateway: Gateway, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    python = pypi.installed(pypi.LANGCHAIN_GOOGLE, request.config)
    told = told_by(python, "ask_langchain_google_embeddings.py", gateway, tmp_path)
    assert told == {"texts": vectors(4), "query": vectors(4)[0]}
