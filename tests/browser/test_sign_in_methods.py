"""An operator's sign-in methods in a real browser: the pages, their one script under the policy, an authenticator."""

from __future__ import annotations

from base64 import b32decode
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from apps.organizations.actions import create_operator
from apps.organizations.models import Passkey, TwoFactor
from gateway_project.configuration.web_origins import PasskeyDomain
from tests.support.authenticator import app_code
from tests.support.cast import PASSWORD
from tests.support.chromium import PROGRAM, Browser, chromium

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
]
EMAIL = "op@example.com"


@pytest.fixture
def url(live_server: Any, settings: Any) -> str:
    """Return where the server is, under a name that browsers take for the domain of passkeys."""
    address = f"http://localhost:{urlsplit(live_server.url).port}"
    settings.PASSKEY_DOMAIN = PasskeyDomain("localhost", (address,))
    settings.ALLOWED_HOSTS = ["localhost"]
    return address


def sign_in(browser: Browser, url: str) -> None:
    browser.open(f"{url}/admin/login/")
    browser.fill("#id_username", EMAIL)
    browser.fill("#id_password", PASSWORD)
    browser.click("#login-form [type=submit]")
    browser.wait("location.pathname === '/admin/'")


def test_an_operator_adds_app_and_passkey_and_signs_in_with_the_passkey_alone(url: str, tmp_path: Path) -> None:
    operator = create_operator(email=EMAIL, password=PASSWORD)
    page = f"{url}/admin/organizations/twofactor/mine/"
    with chromium(tmp_path) as browser:
        browser.plug_in_authenticator()
        sign_in(browser, url)
        browser.wait("[...document.links].some((one) => one.pathname.endsWith('/twofactor/mine/'))")
        browser.open(page)
        assert "Prove that it is you" in browser.text()
        assert browser.run("document.querySelector('#add-passkey')") is None
        browser.fill("#prove-password", PASSWORD)
        browser.click("#prove [type=submit]")
        browser.wait("document.querySelector('#add-passkey')")

        browser.click("[value=begin]")
        browser.wait("document.querySelector('#secret')")
        assert browser.run("document.querySelector('img[alt^=QR]').naturalWidth") > 100
        secret = browser.text("#secret")
        assert browser.text("#otpauth").startswith("otpauth://totp/Model%20gateway:op%40example.com?")
        browser.fill("#confirm-code", app_code(secret=b32decode(secret)))
        browser.click("#confirm [type=submit]")
        browser.wait("document.querySelectorAll('#recovery-codes li').length === 10")
        assert TwoFactor.objects.get(user=operator).confirmed_at is not None

        browser.fill("#passkey-name", "laptop")
        browser.click("#add-passkey [data-passkey]")
        browser.wait("document.querySelector('#passkeys')")
        assert "laptop" in browser.text("#passkeys")
        assert browser.run("document.querySelector('#recovery-codes')") is None, "they are shown once"
        assert Passkey.objects.get().user == operator

        browser.click("#logout-form [type=submit]")
        browser.wait("document.body.innerText.includes('logged out')")
        browser.open(f"{url}/admin/login/")
        browser.click("#login-form [data-passkey]")
        browser.wait("location.pathname === '/admin/'")
        assert Passkey.objects.get().last_used_at is not None

        browser.open(page)
        browser.click("#prove [data-passkey]")
        browser.wait("document.querySelector('#add-passkey')")
        browser.click("#passkeys [value=remove]")
        browser.wait("document.body.innerText.includes('was removed')")
        assert Passkey.objects.count() == 0
        assert [one for one in browser.problems if "Content Security Policy" in one or "Error" in one] == []
