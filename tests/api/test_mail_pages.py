"""The pages behind links of e-mails: to confirm an address, and to choose another password (section 2)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core import mail
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from knox.models import AuthToken

from apps.organizations import actions
from apps.organizations.accounts import account_emails
from apps.organizations.credentials import attempt_rate_limiter
from apps.organizations.credentials.email_tokens import reset_token, verification_token
from apps.organizations.models import AuditEntry, User
from tests.support.authenticator import app_code, enrol
from tests.support.cast import PASSWORD, Caller, World, signed_in
from tests.support.webauthn_authenticator import sign_in

NEW = "a short swim in the lake"
ASK, RESET = "/auth/request-password-reset", "/auth/reset-password"
SENT = {"message": "If this address has an account, we have sent it a link"}


def link_in(text: str) -> str:
    """Return the link of a message, without the place."""
    found = re.search(r"^    http://127.0.0.1:\d+(/\S+)", text, re.MULTILINE)
    assert found is not None
    return found[1]


def token_of(page: Any) -> str:
    found = re.search('name="token" value="([^"]+)"', page.content.decode())
    assert found is not None
    return found[1]


def send(path: str, client: Client | None = None, **fields: str) -> Any:
    """Send the form as a browser does."""
    return (client or Client()).post(path, urlencode(fields), content_type="application/x-www-form-urlencoded")


class TestEveryPage:
    @pytest.mark.parametrize("path", ["/verify-email", "/reset-password"])
    def test_it_loads_nothing_and_tells_its_address_to_nobody(self, db: None, path: str) -> None:
        for response in (Client().get(path, {"token": "x"}), send(path, token="x")):
            assert response["Referrer-Policy"] == "no-referrer"
            policy = dict(one.strip().split(" ", 1) for one in response["Content-Security-Policy"].split(";"))
            assert set(policy) == {"default-src", "style-src", "base-uri", "form-action", "frame-ancestors"}
            assert (policy["default-src"], policy["form-action"]) == ("'none'", "'self'")
            assert response["Cache-Control"] == "no-store"
            text = response.content.decode()
            assert not re.search(r"<script|<img|<link|src=|https?://", text)
            assert response.cookies == {}

    @pytest.mark.parametrize("path", ["/verify-email", "/reset-password"])
    def test_what_stands_in_the_link_is_text(self, db: None, path: str) -> None:
        text = Client().get(path, {"token": '"><script>alert(1)</script>'}).content.decode()
        assert "<script" not in text
        assert "&lt;script&gt;" in text

    @pytest.mark.parametrize("path", ["/verify-email", "/reset-password"])
    def test_opening_it_asks_the_database_nothing(self, world: World, path: str) -> None:
        """Scanners of mail open every link, some twice."""
        token = verification_token(world.olivia) if path == "/verify-email" else reset_token(world.olivia)
        with CaptureQueriesContext(connection) as captured:
            for method in ("get", "head", "get"):
                assert getattr(Client(), method)(path, {"token": token}).status_code == 200
        assert len(captured) == 0

    @pytest.mark.parametrize("path", ["/verify-email", "/reset-password"])
    def test_tries_are_throttled(self, db: None, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            attempt_rate_limiter, "VERIFY_PER_ADDRESS", attempt_rate_limiter.AttemptLimit("verify-email:address", 2)
        )
        monkeypatch.setattr(
            attempt_rate_limiter, "RESET_PER_ADDRESS", attempt_rate_limiter.AttemptLimit("password-reset:address", 2)
        )
        answers = [send(path, token="x", password=NEW) for _ in range(3)]
        assert [one.status_code for one in answers] == [400, 400, 429]
        assert 0 < int(answers[2]["Retry-After"]) <= 61


def test_a_link_confirms_an_address_by_its_button_once(world: World, settings: Any, mailoutbox: Any) -> None:
    actions.want_verification(email=world.olivia.email)
    assert account_emails.send_pending_emails() == 1
    page = Client().get(link_in(mail.outbox[0].body))
    assert User.objects.get(pk=world.olivia.pk).email_verified_at is None, "opened is not confirmed"
    # As a browser sends it under a `no-referrer` policy.
    strict = Client(enforce_csrf_checks=True, headers={"origin": "null"})
    done = send("/verify-email", strict, token=token_of(page))
    assert "is confirmed" in done.content.decode()
    assert User.objects.get(pk=world.olivia.pk).email_verified_at is not None
    again = send("/verify-email", strict, token=token_of(page))
    assert (again.status_code, "was used or has expired" in again.content.decode()) == (400, True)


class TestAnotherPassword:
    def test_a_link_lets_its_reader_choose_one_once(self, world: World, mailoutbox: Any) -> None:
        session = signed_in(world.olivia)
        assert Caller().post(ASK, {"email": "Olivia@Example.com"}).json() == SENT
        assert (account_emails.send_pending_emails(), account_emails.send_pending_emails()) == (1, 0)
        (message,) = mail.outbox
        assert message.to == [world.olivia.email]
        token = token_of(Client().get(link_in(message.body)))
        client = Client(enforce_csrf_checks=True, headers={"origin": "null"})
        refused = send("/reset-password", client, token=token, password="12345678")
        assert (refused.status_code, "too common" in refused.content.decode()) == (400, True)
        assert "12345678" not in refused.content.decode()
        assert sign_in(world.olivia).status_code == 200, "nothing has changed yet"
        done = send("/reset-password", client, token=token, password=NEW)
        assert "was changed" in done.content.decode()
        assert session.get("/auth/get-session").status_code == 401
        assert [sign_in(world.olivia, password=one).status_code for one in (PASSWORD, NEW)] == [401, 200]
        assert send("/reset-password", client, token=token, password="yet another one").status_code == 400
        assert sign_in(world.olivia, password=NEW).status_code == 200
        entry = AuditEntry.objects.get(action="password.reset")
        assert (entry.organization_id, entry.actor_email, entry.details) == (world.acme.id, world.olivia.email, {})

    def test_the_api_does_what_the_page_does(self, world: World) -> None:
        token = reset_token(world.olivia)
        assert Caller().post(RESET, {"token": token, "password": "short"}).status_code == 400
        done = Caller().post(RESET, {"token": token, "password": NEW})
        assert done.json() == {"message": "The password was changed"}
        assert Caller().post(RESET, {"token": token, "password": PASSWORD}).status_code == 400
        assert sign_in(world.olivia, password=NEW).status_code == 200

    def test_who_has_an_account_is_told_to_nobody(self, world: World, mailoutbox: Any) -> None:
        User.objects.filter(pk=world.sam.pk).update(is_active=False)
        for address in ("nobody@example.com", world.sam.email):
            assert Caller().post(ASK, {"email": address}).json() == SENT
        assert (account_emails.send_pending_emails(), len(mail.outbox)) == (0, 0)

    @pytest.mark.parametrize("flaw", ["nonsense", "too old", "another address", "of another kind", "closed"])
    def test_a_token_that_is_not_good_changes_nothing(
        self, world: World, flaw: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        token, users = reset_token(world.olivia), User.objects.filter(pk=world.olivia.pk)
        if flaw == "nonsense":
            token = "nonsense"
        elif flaw == "too old":
            monkeypatch.setattr("apps.organizations.credentials.email_tokens.RESET_LASTS", timedelta(seconds=-1))
        elif flaw == "another address":
            users.update(email="moved@example.com")
        elif flaw == "closed":
            users.update(is_active=False)
        else:
            token = verification_token(world.olivia)
        before, sessions = users.get().password, AuthToken.objects.count()
        assert Caller().post(RESET, {"token": token, "password": NEW}).status_code == 400
        assert send("/reset-password", token=token, password=NEW).status_code == 400
        assert (users.get().password, AuthToken.objects.count()) == (before, sessions)

    def test_a_second_factor_stays(self, world: World) -> None:
        """A person who can read the mail has one factor, not two."""
        enrol(world.olivia)
        Caller().post(RESET, {"token": reset_token(world.olivia), "password": NEW})
        assert sign_in(world.olivia, password=NEW).status_code == 401
        assert sign_in(world.olivia, password=NEW, code=app_code()).status_code == 200

    def test_messages_are_not_asked_for_without_end(self, world: World) -> None:
        statuses = [Caller().post(ASK, {"email": world.olivia.email}).status_code for _ in range(6)]
        assert statuses == [200] * 5 + [429]
        assert Caller().post(ASK, {"email": world.dana.email}).status_code == 200
