"""Frameworks from PyPI that bring environments of their own: LiteLLM as a client, instructor, DSPy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients import npm, pypi
from tests.clients.gateway import EVERY_FORMAT, Behind, Gateway

pytestmark = [pytest.mark.stack, pytest.mark.agents, pytest.mark.timeout(600)]

SCRIPTS = Path(__file__).parent / "scripts"
# LiteLLM's names of formats, and what each wants behind the gateway's address.
FORMATS = {"openai": "/v1", "anthropic": ""}


@pytest.fixture(params=EVERY_FORMAT, ids=[behind.format for behind in EVERY_FORMAT])
def behind(request: pytest.FixtureRequest) -> Behind:
    """The provider that answers: one of every format."""
    chosen: Behind = request.param
    return chosen


def told_by(python: Path, script: str, gateway: Gateway, behind: Behind, home: Path, **environment: str) -> Any:
    """Return what a script tells that asks a model of the gateway's."""
    said = npm.run(
        [python, SCRIPTS / script],
        home=home,
        folder=home,
        GATEWAY_URL=gateway.url,
        GATEWAY_KEY=gateway.key,
        MODEL=behind.model,
        # It would look for lists of models elsewhere.
        LITELLM_LOCAL_MODEL_COST_MAP="True",
        **environment,
    )
    return json.loads(said.splitlines()[-1])


@pytest.mark.parametrize("client", FORMATS)
def test_litellm(gateway: Gateway, behind: Behind, client: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    python = pypi.installed(pypi.LITELLM, request.config)
    asked = {"FORMAT": client, "BASE_URL": gateway.url + FORMATS[client]}
    assert told_by(python, "ask_litellm.py", gateway, behind, tmp_path, **asked) == {
        "text": "You said: hello",
        "tokens": True,
        "streamed": "You said: one two",
        "call": ["look", {"city": "Rome"}],
        "answered": "look answered: Rome is fine",
        "person": "Ada",
    }


def test_instructor(gateway: Gateway, behind: Behind, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    python = pypi.installed(pypi.INSTRUCTOR, request.config)
    told = told_by(python, "ask_instructor.py", gateway, behind, tmp_path)
    # The sandbox repeats the text in quotation marks; without a schema, that is the field, too.
    assert told == {"TOOLS": "name", "JSON": "name", "JSON_SCHEMA": "name", "streamed": "name"}


def test_dspy(gateway: Gateway, behind: Behind, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    python = pypi.installed(pypi.DSPY, request.config)
    told = told_by(python, "ask_dspy.py", gateway, behind, tmp_path)
    # The sandbox repeats the text in quotation marks.
    assert told == {"text": "You said: hello", "name": "name"}
