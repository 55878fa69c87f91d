"""Codex, as npm delivers it, does a small task with tools: it writes a file by a command, looks at it, and ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients import npm
from tests.clients.gateway import EVERY_FORMAT, Behind, Gateway, Key

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

CONTENT = "Grüße\n"
# The task over every format takes minutes: a run does it over one that is not Codex's own.
USUAL = {"anthropic"}
OVER = [
    pytest.param(behind, id=behind.format, marks=[] if behind.format in USUAL else [pytest.mark.agents])
    for behind in EVERY_FORMAT
    if behind.format in {"openai", "anthropic", "google", "responses", "bedrock", "cohere"}
]


@pytest.fixture(scope="session")
def codex(request: pytest.FixtureRequest) -> Path:
    """The program."""
    return npm.installed(npm.CODEX, request.config) / "node_modules/.bin/codex"


def config_of(gateway: Gateway, model: str) -> str:
    """Return what its users write into `config.toml`."""
    return f"""
model = "{model}"
model_provider = "gateway"

[model_providers.gateway]
name = "gateway"
base_url = "{gateway.openai_url}"
env_key = "GATEWAY_KEY"
wire_api = "responses"
"""


COMMAND = f"printf '{CONTENT}' > hello.txt && cat hello.txt"


def write_a_file(program: Path, gateway: Gateway, model: str, key: Key, place: Path) -> list[dict[str, Any]]:
    """Have Codex write a file and look at it in `place`; return the events of its run."""
    home, folder = place / "home", place / "work"
    (home / ".codex").mkdir(parents=True)
    folder.mkdir()
    (home / ".codex" / "config.toml").write_text(config_of(gateway, model))
    said = npm.run(
        [
            *(program, "exec", "--json", "--skip-git-repo-check"),
            *("--dangerously-bypass-approvals-and-sandbox", "-"),
        ],
        said=f"exec_command({json.dumps({'cmd': COMMAND})})",
        home=home,
        folder=folder,
        GATEWAY_KEY=key.token,
    )
    assert (folder / "hello.txt").read_text() == CONTENT
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("behind", OVER)
def test_it_writes_a_file_and_ends(codex: Path, gateway: Gateway, behind: Behind, tmp_path: Path) -> None:
    key = gateway.new_key("codex")
    events = write_a_file(codex, gateway, behind.model, key, tmp_path)
    assert [event["type"] for event in events][-1] == "turn.completed"
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    (ran,) = [item for item in items if item["type"] == "command_execution"]
    assert (ran["exit_code"], ran["aggregated_output"]) == (0, CONTENT)
    assert [item["text"] for item in items if item["type"] == "agent_message"][-1].startswith("exec_command answered")

    logs = gateway.logs_of(key)
    assert [(log["usedProvider"], log["usedModel"], log["statusCode"]) for log in logs] == [
        (behind.provider, behind.model_id, 200)
    ] * 2
    assert all(log["streamed"] and int(log["promptTokens"]) > 1000 and log["cost"] > 0 for log in logs)
    assert gateway.is_paid_to_the_last_digit()
