"""cline, Continue and pi, as npm delivers them, do a small task: they write a file, run a command, and end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients import npm
from tests.clients.gateway import Behind, Gateway, Key
from tests.clients.over import CONTENT, over

pytestmark = [pytest.mark.stack, pytest.mark.agents, pytest.mark.timeout(600)]

COMMAND = "echo done > ran.txt"
# pi's names of formats, what each wants behind the gateway's address, and the route of each.
PIS_FORMATS = {
    "openai-completions": ("/v1", "chat_completions"),
    "openai-responses": ("/v1", "responses"),
    "anthropic-messages": ("", "messages"),
    "google-generative-ai": ("/v1beta", "generate_content"),
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where a program keeps its settings."""
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the task is done."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def program(package: str, name: str, request: pytest.FixtureRequest) -> Path:
    """Return a package's program."""
    return npm.installed(package, request.config) / "node_modules/.bin" / name


def call(tool: str, **arguments: Any) -> str:
    """Return the words that have the sandbox call a tool."""
    return f"{tool}({json.dumps(arguments)})"


def assert_done(gateway: Gateway, behind: Behind, key: Key, folder: Path, route: str) -> None:
    """The file is there, the command ran, and every request was answered, logged and paid."""
    # cline's patches leave out the end of the last line.
    assert (folder / "hello.txt").read_text().splitlines() == CONTENT.splitlines()
    assert (folder / "ran.txt").read_text() == "done\n"
    logs = gateway.logs_of(key)
    assert [(log["usedProvider"], log["usedModel"], log["statusCode"], log["route"]) for log in logs] == [
        (behind.provider, behind.model_id, 200, route)
    ] * len(logs)
    assert len(logs) >= 2
    assert all(log["streamed"] and log["cost"] > 0 for log in logs)
    assert gateway.is_paid_to_the_last_digit()


@pytest.mark.parametrize("behind", over())
def test_cline(gateway: Gateway, behind: Behind, home: Path, folder: Path, request: pytest.FixtureRequest) -> None:
    cline, key = program(npm.CLINE, "cline", request), gateway.new_key("cline")
    # Kept there, it starts no daemon.
    data = ("--data-dir", home / "data")
    settings = ["-p", "openai", "-k", key.token, "-m", behind.model, "-b", gateway.openai_url]
    npm.run([cline, "auth", *data, *settings], home=home, folder=folder)
    write = call("editor", path=str(folder / "hello.txt"), new_text=CONTENT)
    # OpenAI's models get another tool for files.
    patch = "\n".join(["*** Begin Patch", "*** Add File: hello.txt", "+hi", "+Grüße", "*** End Patch"])
    task = f"{write} or {call('apply_patch', input=patch)} and {call('run_commands', commands=[COMMAND])}"
    said = npm.run([cline, *data, "--json", task], home=home, folder=folder)
    told = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    (result,) = [line for line in told if line["type"] == "run_result"]
    assert result["finishReason"] == "completed"
    assert "editor answered" in result["text"] or "apply_patch answered" in result["text"]
    assert_done(gateway, behind, key, folder, "chat_completions")


@pytest.mark.parametrize("behind", over())
def test_continue(gateway: Gateway, behind: Behind, home: Path, folder: Path, request: pytest.FixtureRequest) -> None:
    cn, key = program(npm.CONTINUE, "cn", request), gateway.new_key("Continue")
    model = {
        "name": "gateway",
        "provider": "openai",
        "model": behind.model,
        "apiBase": gateway.openai_url,
        "apiKey": key.token,
        "capabilities": ["tool_use"],
        "roles": ["chat"],
    }
    config = home / "config.yaml"
    # JSON is YAML.
    config.write_text(json.dumps({"name": "gateway", "version": "0.0.1", "schema": "v1", "models": [model]}))
    task = f"{call('Write', filepath=str(folder / 'hello.txt'), content=CONTENT)} and {call('Bash', command=COMMAND)}"
    said = npm.run(
        [cn, "-p", "--config", config, "--auto", task], home=home, folder=folder, CONTINUE_TELEMETRY_ENABLED="0"
    )
    assert "Write answered: Successfully created file" in said
    assert_done(gateway, behind, key, folder, "chat_completions")


@pytest.mark.parametrize("client", PIS_FORMATS)
@pytest.mark.parametrize("behind", over())
def test_pi(
    gateway: Gateway, behind: Behind, client: str, home: Path, folder: Path, request: pytest.FixtureRequest
) -> None:
    pi, key = program(npm.PI, "pi", request), gateway.new_key("pi")
    path, route = PIS_FORMATS[client]
    said_of_it = {"baseUrl": gateway.url + path, "apiKey": key.token, "api": client, "models": [{"id": behind.model}]}
    (home / ".pi/agent").mkdir(parents=True)
    (home / ".pi/agent/models.json").write_text(json.dumps({"providers": {"gateway": said_of_it}}))
    task = f"{call('write', path='hello.txt', content=CONTENT)} and {call('bash', command=COMMAND)}"
    said = npm.run(
        [pi, "-p", "--mode", "json", "--offline", "--provider", "gateway", "--model", behind.model, task],
        home=home,
        folder=folder,
    )
    assert json.loads(said.splitlines()[-1])["type"] == "agent_end"
    assert "write answered: Successfully wrote" in said
    assert_done(gateway, behind, key, folder, route)
