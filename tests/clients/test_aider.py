"""aider, as PyPI delivers it, does a small task in its own way: it edits a file, runs the test command, and ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients import npm, pypi
from tests.clients.gateway import Behind, Gateway
from tests.clients.over import CONTENT, over

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

# aider has no tools: a model writes files into its answer. Here it repeats what it is asked.
TASK = f"[[sandbox verbatim]]\nhello.txt\n```\n{CONTENT}```\n"


@pytest.fixture(scope="session")
def aider(request: pytest.FixtureRequest) -> Path:
    """The program."""
    return pypi.installed(pypi.AIDER, request.config).with_name("aider")


@pytest.mark.parametrize("behind", over())
def test_it_edits_a_file_and_runs_a_command(aider: Path, gateway: Gateway, behind: Behind, tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    (tmp_path / "task.txt").write_text(TASK)
    key = gateway.new_key("aider")
    said = npm.run(
        [
            *(aider, "--model", f"openai/{behind.model}", "--edit-format", "whole"),
            *("--message-file", tmp_path / "task.txt", "--yes-always", "--no-git"),
            *("--test-cmd", "echo done > ran.txt", "--auto-test"),
            *("--no-check-update", "--analytics-disable", "--no-show-model-warnings"),
        ],
        home=home,
        folder=folder,
        OPENAI_API_BASE=gateway.openai_url,
        OPENAI_API_KEY=key.token,
    )
    assert "Applied edit to hello.txt" in said
    assert ((folder / "hello.txt").read_text(), (folder / "ran.txt").read_text()) == (CONTENT, "done\n")

    logs = gateway.logs_of(key)
    assert [(log["usedProvider"], log["usedModel"], log["statusCode"]) for log in logs] == [
        (behind.provider, behind.model_id, 200)
    ] * len(logs)
    assert [log["streamed"] for log in logs] == [True]
    assert gateway.is_paid_to_the_last_digit()
