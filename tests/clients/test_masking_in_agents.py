"""Masked addresses in sessions of agents as npm delivers them: an agent reads a mail, and its next call has an address.

The provider sees placeholders alone; the agent's own tools get the addresses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.clients import npm
from tests.clients.gateway import EVERY_FORMAT, Gateway
from tests.clients.test_claude_code import claude_code as claude_code
from tests.clients.test_codex import codex as codex
from tests.clients.test_codex import config_of

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

ANN, BEN = "ann@zanzibar-post.com", "ben@zanzibar-post.com"
MAIL = f"From: {ANN}\nSend the minutes to {BEN}.\n"
OPENAI, ANTHROPIC = (next(one for one in EVERY_FORMAT if one.format == name) for name in ("openai", "anthropic"))


@pytest.fixture
def masking(gateway: Gateway) -> Iterator[None]:
    """Personal data is masked, in results of tools as well."""
    gateway.mask_personal_data(is_on=True)
    yield
    gateway.mask_personal_data(is_on=False)


def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Return an agent's home, and its folder with a mail."""
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    (folder / "mail.txt").write_text(MAIL)
    return home, folder


def assert_providers_saw_no_address(gateway: Gateway, tag: str) -> None:
    bodies = [json.dumps(one["body"]) for one in gateway.sent(tag)]
    assert len(bodies) == 4
    assert [("zanzibar" in body) for body in bodies] == [False] * 4
    # The same address has the same number in both runs, which are one session.
    [(ann, ben)] = set(re.findall(r"From: \[EMAIL_(\d)\].{1,40}?minutes to \[EMAIL_(\d)\]", bodies[1]))
    assert ann != ben
    assert f"echo [EMAIL_{ben}] > sent.txt" in bodies[2]


@pytest.mark.usefixtures("masking")
def test_claude_code_reads_a_mail_and_its_shell_gets_the_address(
    claude_code: list[str | Path], gateway: Gateway, tmp_path: Path
) -> None:
    home, folder = folders(tmp_path)
    key, tag = gateway.new_key("Claude Code"), uuid4().hex

    def run(call: str, *more: str) -> str:
        said = npm.run(
            [
                *(*claude_code, "-p", *more, "--model", ANTHROPIC.model),
                *("--output-format", "json", "--allowedTools", "Read,Bash"),
            ],
            said=f"{call} [[sandbox tag={tag}]]",
            home=home,
            folder=folder,
            ANTHROPIC_BASE_URL=gateway.url,
            ANTHROPIC_AUTH_TOKEN=key.token,
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            DISABLE_AUTOUPDATER="1",
        )
        result: dict[str, Any] = json.loads(said[said.index("{") :].splitlines()[0])
        assert (result["subtype"], result["is_error"], result["permission_denials"]) == ("success", False, [])
        return str(result["result"])

    read = run(f"Read({json.dumps({'file_path': str(folder / 'mail.txt')})})")
    assert (ANN in read, BEN in read) == (True, True)
    run(f"Bash({json.dumps({'command': f'echo {BEN} > sent.txt', 'description': 'Send it'})})", "--continue")
    assert (folder / "sent.txt").read_text() == f"{BEN}\n"
    assert_providers_saw_no_address(gateway, tag)


@pytest.mark.usefixtures("masking")
def test_codex_reads_a_mail_and_its_shell_gets_the_address(codex: Path, gateway: Gateway, tmp_path: Path) -> None:
    home, folder = folders(tmp_path)
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(config_of(gateway, OPENAI.model))
    key, tag = gateway.new_key("codex"), uuid4().hex

    def run(command: str, *more: str) -> str:
        said = npm.run(
            [
                codex,
                "exec",
                "--json",
                "--skip-git-repo-check",
                "--dangerously-bypass-approvals-and-sandbox",
                *more,
                "-",
            ],
            said=f"exec_command({json.dumps({'cmd': command})}) [[sandbox tag={tag}]]",
            home=home,
            folder=folder,
            GATEWAY_KEY=key.token,
        )
        items = [json.loads(line).get("item") or {} for line in said.splitlines() if line.startswith("{")]
        return next(str(item["text"]) for item in reversed(items) if item.get("type") == "agent_message")

    read = run("cat mail.txt")
    assert (ANN in read, BEN in read) == (True, True)
    run(f"echo {BEN} > sent.txt", "resume", "--last")
    assert (folder / "sent.txt").read_text() == f"{BEN}\n"
    assert_providers_saw_no_address(gateway, tag)
