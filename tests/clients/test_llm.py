"""llm, as PyPI delivers it, does a small task with two tools: it writes a file, runs a command, and ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients import npm, pypi
from tests.clients.gateway import Behind, Gateway
from tests.clients.over import CONTENT, over

pytestmark = [pytest.mark.stack, pytest.mark.agents, pytest.mark.timeout(600)]

TOOLS = Path(__file__).parent / "scripts" / "llm_tools.py"


def config_of(gateway: Gateway, behind: Behind) -> str:
    """Return what its users write into `extra-openai-models.yaml`."""
    return f"""
- model_id: gateway
  model_name: {behind.model}
  api_base: {gateway.openai_url}
  api_key_name: gateway
  supports_tools: true
  supports_schema: true
"""


@pytest.mark.parametrize("behind", over())
def test_it_writes_a_file_and_runs_a_command(
    gateway: Gateway, behind: Behind, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    llm = pypi.installed(pypi.LLM, request.config).with_name("llm")
    home, folder = tmp_path / "home", tmp_path / "work"
    (home / "llm").mkdir(parents=True)
    folder.mkdir()
    key = gateway.new_key("llm")
    (home / "llm" / "extra-openai-models.yaml").write_text(config_of(gateway, behind))
    (home / "llm" / "keys.json").write_text(json.dumps({"gateway": key.token}))
    target = folder / "hello.txt"
    write = f"write_file({json.dumps({'path': str(target), 'content': CONTENT})})"
    run = f"run_command({json.dumps({'command': 'echo done > ran.txt'})})"
    asked = {"home": home, "folder": folder, "LLM_USER_PATH": str(home / "llm")}
    said = npm.run([llm, "-m", "gateway", "--functions", TOOLS, f"{write} and {run}"], **asked)
    assert "write_file answered: written" in said
    assert (target.read_text(), (folder / "ran.txt").read_text()) == (CONTENT, "done\n")
    form = npm.run([llm, "-m", "gateway", "--no-stream", "--schema", "name, age int", "who is 'Ada'?"], **asked)
    assert json.loads(form)["name"] == "Ada"

    logs = gateway.logs_of(key)
    assert [(log["usedProvider"], log["usedModel"], log["statusCode"], log["streamed"]) for log in logs] == [
        (behind.provider, behind.model_id, 200, streamed) for streamed in (True, True, False)
    ]
    assert gateway.is_paid_to_the_last_digit()
