"""qwen-code, as npm delivers it, does a small task with two tools: it writes a file, runs a command, and ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients import npm
from tests.clients.gateway import Behind, Gateway
from tests.clients.over import CONTENT, over

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]


@pytest.fixture(scope="session")
def qwen(request: pytest.FixtureRequest) -> Path:
    """The program."""
    return npm.installed(npm.QWEN_CODE, request.config) / "node_modules/.bin/qwen"


@pytest.mark.parametrize("behind", over())
def test_it_writes_a_file_and_runs_a_command(qwen: Path, gateway: Gateway, behind: Behind, tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    target = folder / "hello.txt"
    key = gateway.new_key("qwen-code")
    write = f"write_file({json.dumps({'file_path': str(target), 'content': CONTENT})})"
    command = {"command": "echo done > ran.txt", "is_background": False, "description": "note it"}
    said = npm.run(
        [
            *(qwen, "--auth-type", "openai", "--approval-mode", "yolo", "--output-format", "json"),
            # Its words about this tool are in the user's message, and the sandbox calls what that names.
            *("--exclude-tools", "agent"),
        ],
        said=f"{write} and run_shell_command({json.dumps(command)})",
        home=home,
        folder=folder,
        OPENAI_BASE_URL=gateway.openai_url,
        OPENAI_API_KEY=key.token,
        OPENAI_MODEL=behind.model,
    )
    result = json.loads(said[said.index("[") :])[-1]
    assert (result["subtype"], result["is_error"], result["num_turns"]) == ("success", False, 2)
    tools = result["stats"]["tools"]["byName"]
    assert {name: (tool["count"], tool["success"]) for name, tool in tools.items()} == {
        "write_file": (1, 1),
        "run_shell_command": (1, 1),
    }
    assert "write_file answered: Successfully created" in result["result"]
    assert (target.read_text(), (folder / "ran.txt").read_text()) == (CONTENT, "done\n")

    logs = gateway.logs_of(key)
    assert [(log["usedProvider"], log["usedModel"], log["statusCode"], log["streamed"]) for log in logs] == [
        (behind.provider, behind.model_id, 200, True)
    ] * len(logs)
    assert len(logs) >= 2
    assert gateway.is_paid_to_the_last_digit()
