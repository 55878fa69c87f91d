"""An agent's session in a real browser: from the list to a request, its attempts, its replay, and the comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apps.gateway.access import policy
from apps.gateway.upstream import connection_pool
from apps.organizations.models import Organization
from tests.browser.axe import assert_accessible
from tests.browser.test_playground import sign_in
from tests.support.chromium import PROGRAM, chromium
from tests.support.upstream import Caller, settle_all

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
]
SESSION = "0f3c1d52-6c0e-4f51-9f52-3f1c8ad1c0aa"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"name": "get_weather", "description": "Tell the weather in a city", "input_schema": SCHEMA}


def ask(caller: Caller, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ask as Claude Code does; return the blocks of the answer."""
    headers = {
        "authorization": f"Bearer {caller.token}",
        "x-claude-code-session-id": SESSION,
        "user-agent": "claude-cli/2.1.197 (external, cli)",
    }
    body = {
        "model": "sandbox/tools",
        "max_tokens": 1_000,
        "system": [{"type": "text", "text": "You are an agent."}],
        "messages": messages,
        "tools": [TOOL],
        "metadata": {"user_id": '{"session_id": "another"}'},
    }
    answer = caller.client.post("/v1/messages?beta=true", body, content_type="application/json", headers=headers)
    assert answer.status_code == 200, answer.content
    return list(answer.json()["content"])


def run_agent(caller: Caller) -> None:
    """Run one turn of an agent: a call of a tool, and the answer after its result."""
    Organization.objects.update(retention_level="retain")
    policy.forget_all()
    asked = [{"role": "user", "content": 'weather in "Oslo"'}]
    blocks = ask(caller, asked)
    [call] = [block for block in blocks if block["type"] == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "Snow"}
    ask(caller, [*asked, {"role": "assistant", "content": blocks}, {"role": "user", "content": [result]}])
    assert settle_all() == 2


def test_a_session_leads_to_its_requests_their_replay_and_the_comparison(
    caller: Caller, live_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A thread of this server cannot wait on a connection that another left; in the product all share one.
    monkeypatch.setattr(connection_pool, "_release", lambda address, connection: connection.close())
    run_agent(caller)
    with chromium(tmp_path) as browser:
        sign_in(browser, live_server.url, caller)
        browser.open(f"{live_server.url}/app/o/{caller.organization_id}/sessions")
        row = browser.text("tbody tr")
        assert "Claude Code" in row
        assert "get_weather" in row
        assert "1 turn" in row
        browser.click("tbody a")
        browser.wait("document.querySelector('.tree')")
        assert browser.run("document.querySelectorAll('.tree > li').length") == 1
        assert browser.run("document.querySelectorAll('.tree ol > li').length") == 2
        assert "calls get_weather" in browser.text(".tree")
        assert_accessible(browser)

        browser.click(".tree ol > li:nth-child(2) a")
        browser.wait("document.querySelector('.timeline .waterfall')")
        attempts = browser.text(".timeline")
        assert "sandbox" in attempts
        assert "answered, HTTP 200" in attempts
        assert "first content after" in attempts
        widths = "[...document.querySelectorAll('.timeline rect')].map((one) => one.getBBox().width)"
        assert sum(browser.run(widths)) > 0
        conversation = browser.text(".conversation")
        assert "tool call get_weather" in conversation
        assert "tool result" in conversation
        assert_accessible(browser)

        browser.click(".request-tools a[href*='?log=']:not([href*='other='])")
        browser.wait("document.querySelector('#model-1')?.value === 'sandbox/tools' && document.querySelector('.turn')")
        assert browser.run("document.querySelector('#system').value") == "You are an agent."
        assert "get_weather" in browser.run("document.querySelector('#tools').value")
        turns = browser.run(
            "[...document.querySelectorAll('[data-lane]:first-child .turn h2')].map((one) => one.textContent)"
        )
        assert turns == ["You", "assistant", "tool"]
        assert_accessible(browser)
        # The request is sent only now.
        assert settle_all() == 0
        browser.click("[data-send]")
        browser.wait("document.querySelector('[data-numbers]:not([hidden]) a')")
        assert not browser.run("document.querySelector('.turn .message.error')")
        assert settle_all() == 1

        browser.click("[data-numbers] a")
        browser.wait("document.querySelector('h1').textContent === 'Two requests'")
        figures = browser.text("tbody")
        assert "sandbox" in figures
        assert "Completion tokens" in figures
        assert_accessible(browser)
        assert browser.problems == []


def test_a_replay_beside_another_model_asks_both(
    caller: Caller, live_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_pool, "_release", lambda address, connection: connection.close())
    run_agent(caller)
    with chromium(tmp_path) as browser:
        sign_in(browser, live_server.url, caller)
        browser.open(f"{live_server.url}/app/o/{caller.organization_id}/logs")
        browser.click("tbody a")
        browser.wait("document.querySelector('.request-tools a[href*=\\'other=\\']')")
        browser.click(".request-tools a[href*='other=']")
        browser.wait(
            "document.querySelector('#model-2')?.checkVisibility() && document.querySelectorAll('.turn').length > 2"
        )
        browser.fill("#model-2", "sandbox/echo")
        browser.click("[data-send]")
        browser.wait("document.querySelectorAll('[data-numbers]:not([hidden])').length === 2")
        assert settle_all() == 2
        assert browser.problems == []
