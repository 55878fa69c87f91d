"""Google's client for JavaScript, the AI SDK's and LangChain's models for Google, each as its users write a program."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients import npm, pypi
from tests.clients.gateway import Behind, Gateway

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

SCRIPTS = Path(__file__).parent / "scripts"
WEATHER = ["get_weather", {"city": "Rome"}]


def run(command: list[str | Path], gateway: Gateway, behind: Behind, folder: Path, **environment: str) -> Any:
    """Return what a script tells that asks a model of the gateway's."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "GATEWAY_URL": gateway.url,
            "GATEWAY_KEY": gateway.key,
            "MODEL": behind.model,
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=npm.RUN_PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def run_script(name: str, folder: Path, gateway: Gateway, behind: Behind, **environment: str) -> Any:
    """Return what a script for Node tells: it stands beside the packages that it imports."""
    script = folder / name
    script.write_text((SCRIPTS / name).read_text())
    return run(["node", script], gateway, behind, folder, **environment)


def test_googles_client_for_javascript(gateway: Gateway, behind: Behind, request: pytest.FixtureRequest) -> None:
    folder = npm.installed(npm.GOOGLE_GENAI, request.config)
    assert run_script("google_genai.mjs", folder, gateway, behind) == {
        "text": "You said: hello",
        "finish": "STOP",
        "tokens": True,
        "streamed": "You said: one two",
        "call": WEATHER,
        "thought": True,
        "answered": "get_weather answered: Sun",
        "person": {"name": "Ada"},
        "counted": True,
        "model": f"models/{behind.model_id}",
        "listed": True,
        "error": [True, 404],
    }


@pytest.mark.agents
def test_the_ai_sdks_model_for_google(gateway: Gateway, behind: Behind, request: pytest.FixtureRequest) -> None:
    folder = npm.installed(npm.AI_SDK_GOOGLE, request.config)
    # It writes the function's name beside what it answered, which reaches Google as it is.
    answered = "get_weather\nSun in Rome" if behind.format == "google" else "Sun in Rome"
    assert run_script("ai_sdk_google.mjs", folder, gateway, behind) == {
        "text": f"get_weather answered: {answered}",
        "steps": 2,
        "thought": True,
        "streamed": f"get_weather answered: {answered}",
        "tokens": True,
        "person": {"name": "Ada"},
        "error": [True, 404],
    }


@pytest.mark.agents
def test_langchains_model_for_google(gateway: Gateway, behind: Behind, request: pytest.FixtureRequest) -> None:
    python = pypi.installed(pypi.LANGCHAIN_GOOGLE, request.config)
    told = run([python, SCRIPTS / "langchain_google.py"], gateway, behind, python.parent, HOME="/")
    assert told == {
        "text": "You said: hello",
        "streamed": "You said: one two",
        "call": WEATHER,
        "answered": "get_weather answered: Sun in Rome",
        "person": "Ada",
        "tokens": True,
    }
