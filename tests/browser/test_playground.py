"""The playground in a real browser: two models side by side, streamed, with cost and provider; code without a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apps.console.browser_session import COOKIE
from apps.organizations.sessions import start_session
from tests.support.chromium import PROGRAM, chromium
from tests.support.upstream import Caller

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
]


def test_two_models_answer_side_by_side_and_the_code_has_no_key(
    caller: Caller, live_server: Any, tmp_path: Path
) -> None:
    token = start_session(caller.key.created_by)
    with chromium(tmp_path) as browser:
        browser.ask("Network.setCookie", name=COOKIE, value=token, url=live_server.url, httpOnly=True)
        browser.open(f"{live_server.url}/app/o/{caller.organization_id}/playground?model=sandbox/free")
        browser.wait("document.querySelector('[data-beside]:not([hidden])')")
        browser.click("[data-beside]")
        browser.fill("#model-2", "sandbox/echo")
        browser.fill("#message", "good morning")
        browser.click("[data-send]")
        browser.wait("document.querySelectorAll('[data-numbers]:not([hidden])').length === 2")
        lanes = [browser.text(f"[data-lane]:nth-child({number})") for number in (1, 2)]
        for said in lanes:
            assert "You said: good morning" in said
            assert "Tokens in\n3" in said
            assert "Provider\nsandbox" in said
            assert "Time to first token\n" in said
        assert "Cost\n$0\n" in lanes[0]
        assert "Cost\n$0.00000" in lanes[1]

        browser.click("[data-lane]:nth-child(2) [data-why]")
        browser.wait("document.querySelector('.explained table')")
        assert "sandbox would answer with echo" in browser.text(".explained")

        browser.click("[data-lane]:nth-child(2) [data-code]")
        browser.wait("document.querySelector('#code').open")
        for language in ("curl", "python", "javascript"):
            browser.click(f"[data-language={language}]")
            code = browser.text("#code-text")
            assert "GATEWAY_API_KEY" in code
            assert "good morning" in code
        assert not browser.run("/gw_(dev|live)_\\w/.test(document.documentElement.outerHTML)")
        assert browser.problems == []
