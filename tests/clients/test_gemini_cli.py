"""Gemini CLI, as npm delivers it, does a task with two tools over providers of each format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients import npm
from tests.clients.gateway import Behind, Gateway
from tests.clients.over import CONTENT, over

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "general": {"enableAutoUpdate": False},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
}


@pytest.fixture(scope="session")
def gemini(request: pytest.FixtureRequest) -> Path:
    """The program."""
    return npm.installed(npm.GEMINI_CLI, request.config) / "node_modules/.bin/gemini"


@pytest.mark.parametrize("behind", over())
def test_it_writes_a_file_and_runs_a_command(gemini: Path, gateway: Gateway, behind: Behind, tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "work"
    (home / ".gemini").mkdir(parents=True)
    (home / ".gemini/settings.json").write_text(json.dumps(SETTINGS))
    folder.mkdir()
    target = folder / "hello.txt"
    key = gateway.new_key("Gemini CLI")
    write = f"write_file({json.dumps({'file_path': str(target), 'content': CONTENT})})"
    run = f"run_shell_command({json.dumps({'command': 'echo done > ran.txt', 'description': 'note it'})})"
    said = npm.run(
        [gemini, "--skip-trust", "--model", behind.model, "--approval-mode", "yolo", "--output-format", "json"],
        said=f"why? {write} and {run}",
        home=home,
        folder=folder,
        GOOGLE_GEMINI_BASE_URL=gateway.url,
        GEMINI_API_KEY=key.token,
    )
    result = json.loads(said[said.index("{") :])
    tools = result["stats"]["tools"]
    assert (tools["totalCalls"], tools["totalSuccess"], tools["totalFail"]) == (2, 2, 0)
    assert "write_file answered" in result["response"]
    assert (target.read_text(), (folder / "ran.txt").read_text()) == (CONTENT, "done\n")

    logs = gateway.logs_of(key)
    assert [(log["usedProvider"], log["usedModel"], log["statusCode"]) for log in logs] == [
        (behind.provider, behind.model_id, 200)
    ] * len(logs)
    assert [log["streamed"] for log in logs] == [True, True]
    assert {log["route"] for log in logs} == {"generate_content"}
    assert all(int(log["promptTokens"]) > 1000 and log["cost"] > 0 for log in logs)
    assert gateway.is_paid_to_the_last_digit()
