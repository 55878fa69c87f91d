"""The playground in a real browser: two models side by side, streamed, with cost and provider; code without a key.

axe looks at it filled: answers, calls of tools, pictures sent and made.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from apps.console.browser_session import COOKIE
from apps.gateway.upstream import connection_pool
from apps.organizations.credentials.sessions import start_session
from tests.browser.axe import assert_accessible
from tests.support.chromium import PROGRAM, Browser, chromium
from tests.support.upstream import Caller

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
]

_ADD_PICTURE = """
    (async () => {
        const canvas = Object.assign(document.createElement('canvas'), {width: 8, height: 8});
        const picture = await new Promise((done) => canvas.toBlob(done));
        const files = new DataTransfer();
        files.items.add(new File([picture], 'square.png', {type: 'image/png'}));
        const input = document.querySelector('[data-picture]');
        input.files = files.files;
        input.dispatchEvent(new Event('change'));
    })()
"""


def sign_in(browser: Browser, url: str, caller: Caller) -> None:
    token = start_session(caller.key.created_by)
    browser.ask("Network.setCookie", name=COOKIE, value=token, url=url, httpOnly=True)


def send(browser: Browser, message: str, until: str) -> None:
    browser.fill("#message", message)
    browser.click("[data-send]")
    browser.wait(f"!document.querySelector('[data-send]').disabled && ({until})")


def test_two_models_answer_side_by_side_and_the_code_has_no_key(
    caller: Caller, live_server: Any, tmp_path: Path
) -> None:
    with chromium(tmp_path) as browser:
        sign_in(browser, live_server.url, caller)
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
        assert "Cost\n$0.00\n" in lanes[0]
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


def test_a_filled_page_is_accessible_and_writes_numbers_in_the_readers_locale(
    caller: Caller, live_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A thread of this server cannot wait on a connection that another left; in the product all share one.
    monkeypatch.setattr(connection_pool, "_release", lambda address, connection: connection.close())
    with chromium(tmp_path) as browser:
        browser.ask("Emulation.setLocaleOverride", locale="de-DE")
        sign_in(browser, live_server.url, caller)
        page = f"{live_server.url}/app/o/{caller.organization_id}/playground?model=sandbox/tools&other=sandbox/vision"
        browser.open(page)
        browser.wait("document.querySelector('#model-2').checkVisibility()")
        features = "Tools, Vision, Structured outputs, JSON mode, Prompt cache"
        assert browser.text("#about-1").endswith(f" · 128.000 tokens of context · {features}")
        browser.run("document.querySelector('details.tools').open = true")
        browser.click("[data-tools-example]")
        browser.run(_ADD_PICTURE)
        browser.wait("document.querySelector('[data-pictures] img')")
        send(browser, "call get_weather", "document.querySelectorAll('[data-result]').length === 2")
        for lane in (1, 2):
            cost = re.search(r"Cost\n0,(\d+)\s\$", browser.text(f"[data-lane]:nth-child({lane})"))
            assert cost is not None
            assert len(cost[1]) > 6
        browser.click("[data-lane]:nth-child(1) [data-why]")
        browser.wait("document.querySelector('.explained table')")
        assert "100 %" in browser.text(".explained").replace("\N{NO-BREAK SPACE}", " ")
        browser.fill("#message", "and in Paris?")
        browser.run(_ADD_PICTURE)
        assert_accessible(browser)

        browser.open(f"{live_server.url}/app/o/{caller.organization_id}/playground?model=sandbox/painter")
        browser.wait("document.querySelector('#about-1').innerText")
        send(browser, "a red square", "document.querySelector('.turn img')")
        assert_accessible(browser)
        assert browser.problems == []


def test_the_code_is_what_was_asked_and_what_failed_is_there_to_be_sent_again(
    caller: Caller, live_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_pool, "_release", lambda address, connection: connection.close())
    with chromium(tmp_path) as browser:
        sign_in(browser, live_server.url, caller)
        browser.open(f"{live_server.url}/app/o/{caller.organization_id}/playground?model=sandbox/free")
        send(browser, "good morning", "document.querySelector('[data-numbers]:not([hidden])')")
        browser.click("[data-why]")
        browser.wait("document.querySelector('[data-explained]:not([hidden]) table')")
        browser.click("[data-code]")
        code = browser.text("#code-text")
        assert ('"content": "good morning"' in code, "assistant" in code) == (True, False)
        browser.run("document.querySelector('#code').close()")

        browser.fill("#model-1", "no-such-model")
        send(browser, "and now?", "document.querySelector('.turn .message.error')")
        assert "does not exist" in browser.text(".turn .message.error")
        assert browser.run("document.querySelector('#message').value") == "and now?"
        assert browser.run("document.querySelector('[data-explained]').hidden")
        assert "Recorded in" not in browser.text("[data-numbers]")

        browser.fill("#model-1", "sandbox/free")
        browser.click("[data-send]")
        browser.wait(
            "document.querySelectorAll('.turn').length === 6 && !document.querySelector('[data-send]').disabled"
        )
        assert browser.text(".turn:last-child").endswith("You said: and now?")
        assert browser.run("document.querySelector('#message').value") == ""
        assert "Recorded in" in browser.text("[data-numbers]")
