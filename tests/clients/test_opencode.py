"""opencode, as npm delivers it, does a small task with two tools: it writes a file, runs a command, and ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients import npm
from tests.clients.gateway import Behind, Gateway
from tests.clients.over import CONTENT, over

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]


@pytest.fixture(scope="session")
def opencode(request: pytest.FixtureRequest) -> Path:
    """The program."""
    return npm.installed(npm.OPENCODE, request.config) / "node_modules/.bin/opencode"


def config_of(gateway: Gateway, behind: Behind, token: str) -> dict[str, Any]:
    """Return what its users write into `opencode.json`."""
    return {
        "model": f"gateway/{behind.model}",
        "small_model": "gateway/sandbox/echo",
        "autoupdate": False,
        "share": "disabled",
        "permission": {"edit": "allow", "bash": "allow"},
        "provider": {
            "gateway": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": gateway.openai_url, "apiKey": token},
                "models": {behind.model: {"tool_call": True}, "sandbox/echo": {}},
            }
        },
    }


def task_of(target: Path) -> str:
    """Return the words that have the sandbox call the shell and the one of two tools for writing that is offered."""
    patch = "\n".join(["*** Begin Patch", f"*** Add File: {target.name}", "+hi", "+Grüße", "*** End Patch"])
    return " or ".join(
        [
            f"write({json.dumps({'filePath': str(target), 'content': CONTENT})})",
            f"apply_patch({json.dumps({'patchText': patch})})",
            f"bash({json.dumps({'command': 'echo done > ran.txt', 'description': 'Note it'})})",
        ]
    )


@pytest.mark.parametrize("behind", over())
def test_it_writes_a_file_and_runs_a_command(opencode: Path, gateway: Gateway, behind: Behind, tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    target = folder / "hello.txt"
    key = gateway.new_key("opencode")
    (folder / "opencode.json").write_text(json.dumps(config_of(gateway, behind, key.token)))
    said = npm.run(
        [opencode, "run", "--format", "json"],
        said=task_of(target),
        home=home,
        folder=folder,
        OPENCODE_DISABLE_AUTOUPDATE="1",
        OPENCODE_DISABLE_MODELS_FETCH="1",
    )
    events = [json.loads(line) for line in said.splitlines()]
    assert [event["type"] for event in events if event["type"] == "error"] == []
    tools = {event["part"]["tool"]: event["part"]["state"]["status"] for event in events if event["type"] == "tool_use"}
    assert tools in ({name: "completed", "bash": "completed"} for name in ("write", "apply_patch"))
    (text,) = [event["part"]["text"] for event in events if event["type"] == "text"]
    assert all(f"{tool} answered: " in text for tool in tools)
    assert (target.read_text(), (folder / "ran.txt").read_text()) == (CONTENT, "done\n")

    logs = gateway.logs_of(key)
    tasks = [log for log in logs if log["usedProvider"] != "sandbox"]
    assert [(log["usedProvider"], log["usedModel"], log["statusCode"]) for log in tasks] == [
        (behind.provider, behind.model_id, 200)
    ] * 2
    # The third is its title for the conversation.
    assert [log["streamed"] for log in logs] == [True, True, True]
    assert gateway.is_paid_to_the_last_digit()
