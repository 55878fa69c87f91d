"""opencode, as npm delivers it, does a small task with a tool, over another format than its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients import npm
from tests.clients.gateway import BEHIND, Behind, Gateway

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

CONTENT = "hi\nGrüße\n"


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
        "permission": {"edit": "allow"},
        "provider": {
            "gateway": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": gateway.openai_url, "apiKey": token},
                "models": {behind.model: {"tool_call": True}, "sandbox/echo": {}},
            }
        },
    }


def task_of(target: Path) -> str:
    """Return the words that have the sandbox call the one of its two tools for writing that it offers a model."""
    patch = "\n".join(["*** Begin Patch", f"*** Add File: {target.name}", "+hi", "+Grüße", "*** End Patch"])
    return " or ".join(
        [
            f"write({json.dumps({'filePath': str(target), 'content': CONTENT})})",
            f"apply_patch({json.dumps({'patchText': patch})})",
        ]
    )


@pytest.mark.parametrize("behind", BEHIND[1:2], ids=["anthropic"])
def test_it_writes_a_file(opencode: Path, gateway: Gateway, behind: Behind, tmp_path: Path) -> None:
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
    (tool,) = [event["part"] for event in events if event["type"] == "tool_use"]
    assert (tool["tool"] in {"write", "apply_patch"}, tool["state"]["status"]) == (True, "completed")
    (text,) = [event["part"]["text"] for event in events if event["type"] == "text"]
    assert text.startswith(f"{tool['tool']} answered: ")
    assert target.read_text() == CONTENT

    logs = gateway.logs_of(key)
    tasks = [log for log in logs if log["usedProvider"] != "sandbox"]
    assert [(log["usedProvider"], log["usedModel"], log["statusCode"]) for log in tasks] == [
        (behind.provider, behind.model_id, 200)
    ] * 2
    # The third is its title for the conversation.
    assert [log["streamed"] for log in logs] == [True, True, True]
    assert gateway.is_paid_to_the_last_digit()
