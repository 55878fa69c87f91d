"""The pages that links of e-mails open, in a real browser: under their policy, and with no referrer, buttons work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apps.organizations.credentials.email_tokens import reset_token, verification_token
from apps.organizations.models import User
from tests.support.cast import make_user
from tests.support.chromium import PROGRAM, chromium
from tests.support.webauthn_authenticator import sign_in

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
]


def test_links_are_answered_by_a_button(live_server: Any, tmp_path: Path) -> None:
    user = make_user("Nina")
    with chromium(tmp_path) as browser:
        browser.open(f"{live_server.url}/verify-email?token={verification_token(user)}")
        assert User.objects.get().email_verified_at is None
        browser.click("[type=submit]")
        browser.wait("document.body.innerText.includes('is confirmed')")
        assert User.objects.get().email_verified_at is not None
        assert browser.run("location.search") == "", "the token stands in the address no more"
        browser.open(f"{live_server.url}/reset-password?token={reset_token(user)}")
        browser.fill("#id_password", "a short swim in the lake")
        browser.click("[type=submit]")
        browser.wait("document.body.innerText.includes('was changed')")
        assert sign_in(user, password="a short swim in the lake").status_code == 200
        assert [one for one in browser.problems if "Content Security Policy" in one] == []
