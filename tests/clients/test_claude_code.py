"""Claude Code, as npm delivers it, does a small task with two tools: it writes a file, runs a command, and ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients import npm
from tests.clients.gateway import Behind, Gateway, Key
from tests.clients.over import CONTENT, over

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]


@pytest.fixture(scope="session")
def claude_code(request: pytest.FixtureRequest) -> list[str | Path]:
    """The command that starts it."""
    folder = npm.installed(npm.CLAUDE_CODE, request.config)
    return ["node", folder / "node_modules/@anthropic-ai/claude-code/cli-wrapper.cjs"]


COMMAND = "echo done > ran.txt"


def write_a_file(program: list[str | Path], gateway: Gateway, model: str, key: Key, place: Path) -> dict[str, Any]:
    """Have Claude Code write a file and run a command in `place`; return what it says of its run."""
    home, folder = place / "home", place / "work"
    home.mkdir(parents=True)
    folder.mkdir()
    target = folder / "hello.txt"
    write = f"Write({json.dumps({'file_path': str(target), 'content': CONTENT})})"
    said = npm.run(
        [*program, "-p", "--model", model, "--output-format", "json", "--allowedTools", "Write,Bash"],
        said=f"{write} and Bash({json.dumps({'command': COMMAND, 'description': 'Note it'})})",
        home=home,
        folder=folder,
        ANTHROPIC_BASE_URL=gateway.url,
        ANTHROPIC_AUTH_TOKEN=key.token,
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_AUTOUPDATER="1",
    )
    result: dict[str, Any] = json.loads(said[said.index("{") :].splitlines()[0])
    assert (result["subtype"], result["is_error"], result["permission_denials"]) == ("success", False, [])
    assert (target.read_text(), (folder / "ran.txt").read_text()) == (CONTENT, "done\n")
    return result


@pytest.mark.parametrize("behind", over("anthropic", "google"))
def test_it_writes_a_file_and_runs_a_command(
    claude_code: list[str | Path], gateway: Gateway, behind: Behind, tmp_path: Path
) -> None:
    key = gateway.new_key("Claude Code")
    result = write_a_file(claude_code, gateway, behind.model, key, tmp_path)
    assert "Write answered: File created successfully" in result["result"]

    logs = gateway.logs_of(key)
    assert [(log["usedProvider"], log["usedModel"], log["statusCode"]) for log in logs] == [
        (behind.provider, behind.model_id, 200)
    ] * len(logs)
    assert [log["streamed"] for log in logs] == [True, True]
    assert all(int(log["promptTokens"]) > 1000 and log["cost"] > 0 for log in logs)
    assert gateway.is_paid_to_the_last_digit()
