"""A program's sign-in in a real browser: sign in with a second factor, consent, and be led back to the program.

The browser holds the answer to the form to the page's policy, which no other test sees.
"""

from __future__ import annotations

import os
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import override_settings

from apps.oauth.models import Consent
from tests.browser.axe import ALL_LOOKS, look, screenshot, violations
from tests.support.authenticator import app_code, enrol
from tests.support.cast import PASSWORD, World
from tests.support.chromium import PROGRAM, Browser, chromium
from tests.support.oauth_client import Program

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
]
PICTURES = os.environ.get("CONSOLE_PICTURES")


class _Callback(BaseHTTPRequestHandler):
    """The callback server of a program on the same machine."""

    def do_GET(self) -> None:
        """Thank the browser."""
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(b"You may close this page.")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def shown(browser: Browser, name: str) -> None:
    """Let axe look at the page, and keep pictures of it where they are asked for."""
    for seen, complaints in violations(browser).items():
        browser.problems += [f"{name}, {seen}: {one}" for one in complaints]
    for scheme, size in ALL_LOOKS if PICTURES else ():
        look(browser, scheme, size)
        screenshot(browser, Path(str(PICTURES)) / f"{name}-{scheme}-{size[0]}.png", full=True)


def press(browser: Browser, button: str) -> None:
    """Press the button of a form."""
    browser.run(f"document.querySelector({button!r}).closest('form').requestSubmit(document.querySelector({button!r}))")


def test_a_person_signs_a_program_in_and_out(world: World, live_server: Any, tmp_path: Path) -> None:
    enrol(world.dana)
    listener = HTTPServer(("127.0.0.1", 0), _Callback)
    Thread(target=listener.serve_forever, args=(0.01,), daemon=True).start()
    program = Program(f"http://127.0.0.1:{listener.server_port}/callback")
    program.register(client_name="Claude Code")
    with override_settings(PUBLIC_URL=live_server.url), chromium(tmp_path) as browser:
        browser.open(f"{live_server.url}/app/forgot-password")
        browser.run(f"location.assign({live_server.url + program.authorization()!r})")
        browser.wait("document.querySelector('#sign-in')")
        browser.fill("[name=email]", world.dana.email)
        browser.fill("[name=password]", PASSWORD)
        press(browser, "#sign-in [type=submit]")
        browser.wait("document.querySelector('[name=code]')")
        shown(browser, "second-factor")
        browser.fill("[name=code]", app_code())
        press(browser, "#second-factor [type=submit]")
        browser.wait("document.body.innerText.includes('Allow Claude Code to use this gateway?')")
        shown(browser, "consent")
        press(browser, "[value=allow]")
        browser.wait("document.body.innerText.includes('You may close this page.')")
        back = parse_qs(urlsplit(browser.run("location.href")).query)
        tokens = program.exchange(back["code"][0]).json()
        assert (back["state"], tokens["token_type"]) == (["a-state"], "Bearer")
        assert Consent.objects.get().user == world.dana

        browser.open(live_server.url + program.authorization(scope="everything"))
        browser.wait("document.body.innerText.includes('cannot be granted')")
        shown(browser, "consent-problem")
        browser.open(f"{live_server.url}/app/o/{world.acme.id}/programs")
        shown(browser, "programs")
        press(browser, "main [type=submit]")
        browser.wait("document.body.innerText.includes('No programs yet')")
        shown(browser, "programs-none")
        problems = [one for one in browser.problems if "400" not in one]
        assert problems == []
    listener.shutdown()
    assert program.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"
