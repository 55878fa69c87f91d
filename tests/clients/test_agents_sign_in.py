"""Claude Code and Codex, as npm delivers them, are given `/mcp` and no key: a person signs them in, in a browser.

They then call a tool of the gateway's with the token that they were given. The programs' descriptions, which stand on
the web at the addresses that are their ids, are known to the gateway beforehand: no test asks the web.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from tests.clients import npm
from tests.clients.gateway import Gateway, Key
from tests.clients.test_codex import config_of
from tests.stack.product import eventually
from tests.support.chromium import PROGRAM, Browser, chromium
from tests.support.terminal import terminal

pytestmark = [
    pytest.mark.stack,
    pytest.mark.agents,
    pytest.mark.timeout(600),
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
]

# As their makers describe them.
CLAUDE_CODE = ("https://claude.ai/oauth/claude-code-client-metadata", "Claude Code", "http://localhost/callback")
CODEX = ("https://chatgpt.com/oauth/codex/client.json", "Codex", "http://127.0.0.1/callback")
_KNOW = """
from datetime import timedelta
from django.utils import timezone
from apps.oauth.models import OAuthClient
for client_id, name, callback in {clients}:
    OAuthClient.objects.get_or_create(client_id=client_id, defaults=dict(
        name=name, redirect_uris=callback, registration_source="cimd", authorization_grant_type="authorization-code",
        cimd_expires_at=timezone.now() + timedelta(days=1),
    ))
"""
BROWSER = '#!/bin/sh\nprintf "%s\\n" "$1" >> "$HOME/opened"\n'
SAID = "the agent has signed in"


class Desk:
    """A person's desk: a home, a folder, and a browser that only records the addresses to open."""

    def __init__(self, gateway: Gateway, folder: Path) -> None:
        self.gateway = gateway
        self.home, self.work, self._profile = folder / "home", folder / "work", folder / "chromium"
        self.home.mkdir()
        self.work.mkdir()
        opener = self.home / "open"
        opener.write_text(BROWSER)
        opener.chmod(0o755)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "BROWSER": str(opener),
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def opened(self) -> str:
        """Return the address that the program opens."""
        file = self.home / "opened"
        address: str = eventually(lambda: file.exists() and file.read_text().strip())
        file.unlink()
        return address

    def allow(self, address: str) -> str:
        """Sign in at an address, allow the program that asks, and return what its own page then says."""
        with chromium(self._profile) as browser:
            browser.open(f"{self.gateway.url}/app/forgot-password")
            browser.run(f"location.assign({address!r})")
            browser.wait("document.querySelector('#sign-in')")
            for name in ("email", "password"):
                browser.fill(f"[name={name}]", self.gateway.demo["owner"][name])
            _submit(browser, "#sign-in [type=submit]")
            browser.wait("document.querySelector('[value=allow]')")
            asked = browser.text("main")
            _submit(browser, "[value=allow]")
            browser.wait(f"!location.href.startsWith({self.gateway.url!r}) && document.body.innerText.trim()")
            time.sleep(0.2)
        return asked

    def settle_in(self, token: str) -> None:
        """Answer beforehand the questions of Claude Code's first start."""
        file = self.home / ".claude.json"
        kept = json.loads(file.read_text())
        kept |= {"hasCompletedOnboarding": True, "customApiKeyResponses": {"approved": [token[-20:]], "rejected": []}}
        kept["projects"][str(self.work)] |= {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        file.write_text(json.dumps(kept))

    def calls(self, program: str) -> list[dict[str, Any]]:
        """Return the log's rows of requests with the key that the last consent to a program made; none without one."""
        session = {"Authorization": f"Bearer {self.gateway.demo['sessionToken']}"}
        query = {"projectId": self.gateway.demo["projectId"]}
        answer = requests.get(f"{self.gateway.url}/keys/api", params=query, headers=session, timeout=60)
        made = [one["id"] for one in answer.json()["apiKeys"] if one["description"] == program]
        return self.gateway.logs_of(Key(max(made), "")) if made else []


def allow_claude_code(desk: Desk) -> None:
    """Allow it at the page that it opens."""
    address = desk.opened()
    assert parse_qs(urlsplit(address).query)["client_id"] == [CLAUDE_CODE[0]]
    asked = desk.allow(address)
    assert "Allow Claude Code to use this gateway?" in asked
    assert "its description at claude.ai" in asked


def _submit(browser: Browser, button: str) -> None:
    browser.run(f"document.querySelector({button!r}).closest('form').requestSubmit(document.querySelector({button!r}))")


@pytest.fixture(scope="module")
def knowing(gateway: Gateway) -> Gateway:
    """The product, which has read both descriptions."""
    gateway.manage("shell", "-c", _KNOW.format(clients=[CLAUDE_CODE, CODEX]))
    return gateway


@pytest.fixture
def desk(knowing: Gateway, tmp_path: Path) -> Desk:
    """A person's."""
    return Desk(knowing, tmp_path)


@pytest.fixture(scope="session")
def claude(request: pytest.FixtureRequest) -> list[str | Path]:
    """The command that starts Claude Code."""
    folder = npm.installed(npm.CLAUDE_CODE, request.config)
    return ["node", folder / "node_modules/@anthropic-ai/claude-code/cli-wrapper.cjs"]


@pytest.fixture(scope="session")
def codex(request: pytest.FixtureRequest) -> Path:
    """Codex."""
    return npm.installed(npm.CODEX, request.config) / "node_modules/.bin/codex"


@pytest.mark.parametrize("by", ["command", "menu"])
def test_claude_code_is_signed_in(claude: list[str | Path], desk: Desk, by: str) -> None:
    gateway, key = desk.gateway, desk.gateway.new_key("Claude Code that signs in")
    # A client that signs in twice keeps the key.
    before = len(desk.calls("Claude Code"))
    add = [*claude, "mcp", "add", "--transport", "http", "gateway", f"{gateway.url}/mcp"]
    npm.run(add, home=desk.home, folder=desk.work)
    if by == "command":
        with terminal([*claude, "mcp", "login", "gateway"], desk.work, desk.environment) as screen:
            screen.wait("Waiting for authorization")
            allow_claude_code(desk)
            code = screen.end()
            assert code == 0, screen.text
    else:
        desk.settle_in(key.token)
        models = {"ANTHROPIC_BASE_URL": gateway.url, "ANTHROPIC_AUTH_TOKEN": key.token}
        with terminal([*claude, "--model", "sandbox/echo"], desk.work, {**desk.environment, **models}) as screen:
            screen.wait("needs authentication")
            # The keys to press, and the words that each brings up.
            for keys, words in (
                ("/mcp", "Manage"),
                ("\r", "needs sign-in"),
                ("\r", "Disable in this"),
                ("\r", "browser"),
            ):
                screen.press(keys)
                screen.wait(words)
            allow_claude_code(desk)
            screen.wait("Signed in and connected to gateway")
    chat = {"model": "sandbox/echo", "messages": [{"role": "user", "content": SAID}]}
    said = npm.run(
        [
            *(*claude, "-p", "--model", "sandbox/echo", "--output-format", "json"),
            *("--allowedTools", "mcp__gateway__chat"),
        ],
        said=f"mcp__gateway__chat({json.dumps(chat)})",
        home=desk.home,
        folder=desk.work,
        ANTHROPIC_BASE_URL=gateway.url,
        ANTHROPIC_AUTH_TOKEN=key.token,
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_AUTOUPDATER="1",
        ENABLE_TOOL_SEARCH="false",
    )
    result = json.loads(said[said.index("{") :].splitlines()[0])
    assert (result["subtype"], result["permission_denials"]) == ("success", [])
    assert f"You said: {SAID}" in result["result"]
    (row,) = eventually(lambda: desk.calls("Claude Code")[before:])
    assert (row["route"], row["statusCode"]) == ("chat_completions", 200)


@pytest.mark.parametrize("registration", ["cimd", "dcr"])
def test_codex_is_signed_in(codex: Path, desk: Desk, registration: str) -> None:
    gateway = desk.gateway
    (desk.home / ".codex").mkdir()
    (desk.home / ".codex" / "config.toml").write_text(
        f'{config_of(gateway, "sandbox/echo")}\n[mcp_servers.gateway]\nurl = "{gateway.url}/mcp"\n'
    )
    login: list[str | Path] = [codex, "mcp", "login", "gateway", "--oauth-client-registration", registration]
    with terminal(login, desk.work, desk.environment) as screen:
        screen.wait("Authorize `gateway` by opening this URL")
        address = desk.opened()
        (client_id,) = parse_qs(urlsplit(address).query)["client_id"]
        assert (client_id == CODEX[0]) == (registration == "cimd")
        assert "Allow Codex to use this gateway?" in desk.allow(address)
        assert screen.end() == 0, screen.text
    chat = {"model": "sandbox/echo", "messages": [{"role": "user", "content": SAID}]}
    said = npm.run(
        [
            *(codex, "exec", "--json", "--skip-git-repo-check"),
            *("--dangerously-bypass-approvals-and-sandbox", "-"),
        ],
        said=f"mcp__gateway__chat({json.dumps(chat)})",
        home=desk.home,
        folder=desk.work,
        GATEWAY_KEY=gateway.new_key("Codex that signs in").token,
    )
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    (called,) = [item for item in items if item["type"] == "mcp_tool_call"]
    assert (called["server"], called["tool"], called["status"]) == ("gateway", "chat", "completed")
    assert f"You said: {SAID}" in json.dumps(called["result"])
    (row,) = desk.calls("Codex")
    assert (row["route"], row["statusCode"]) == ("chat_completions", 200)
