"""Two-factor authentication by an authenticator app, for the API and the admin (section 2)."""

from __future__ import annotations

import time
from base64 import b32decode
from dataclasses import replace
from io import StringIO
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.fernet import Fernet
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.utils import timezone
from knox.models import AuthToken
from rest_framework.settings import api_settings

from apps.kernel.secrets.encryption import encrypt
from apps.organizations.actions import create_operator
from apps.organizations.credentials import attempt_rate_limiter, two_factor
from apps.organizations.models import TwoFactor, User
from tests.support.authenticator import SECRET, app_code, enrol
from tests.support.cast import PASSWORD, Caller, World, make_user, signed_in
from tests.support.webauthn_authenticator import add_passkey, answer


def sign_in(user: User, **fields: Any) -> Any:
    return Caller().post("/auth/sign-in/email", {"email": user.email, "password": PASSWORD, **fields})


@pytest.fixture(autouse=True)
def _within_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step ends in the middle of a test."""
    now = time.time() // 30 * 30 + 1
    monkeypatch.setattr(time, "time", lambda: now)


def test_it_is_turned_on_with_password_and_code_and_then_asked_for(world: World) -> None:
    caller = signed_in(world.olivia)
    begun = caller.post("/auth/two-factor", {"password": PASSWORD}).json()
    assert sign_in(world.olivia).status_code == 200, "not before a first code has been seen"
    query = parse_qs(urlsplit(begun["otpauthUrl"]).query)
    assert (query["secret"], query["digits"], query["period"]) == ([begun["secret"]], ["6"], ["30"])
    secret = b32decode(begun["secret"])
    done = caller.post("/auth/two-factor/confirm", {"code": app_code(secret=secret)}).json()
    assert len(set(done["recoveryCodes"])) == 10
    sessions = AuthToken.objects.count()
    refused = sign_in(world.olivia)
    assert (refused.status_code, AuthToken.objects.count()) == (401, sessions)
    assert refused.json() == {"message": "Send the `code` of your authenticator app, or a recovery code"}
    assert sign_in(world.olivia, code=app_code(1, secret)).status_code == 200
    assert sign_in(world.dana).status_code == 200, "it is hers alone"


def test_neither_secret_nor_recovery_codes_lie_in_clear(world: World) -> None:
    caller = signed_in(world.olivia)
    begun = caller.post("/auth/two-factor", {"password": PASSWORD}).json()
    secret = b32decode(begun["secret"])
    codes = caller.post("/auth/two-factor/confirm", {"code": app_code(secret=secret)}).json()["recoveryCodes"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT t::text, encode(sealed_secret, 'escape') FROM organizations_twofactor t")
        kept = str(cursor.fetchall())
    for one in (begun["secret"], secret.hex(), *codes, *(code.replace("-", "") for code in codes)):
        assert one not in kept


def test_a_code_is_good_once(world: World) -> None:
    enrol(world.olivia)
    code = app_code()
    assert [sign_in(world.olivia, code=code).status_code for _ in range(2)] == [200, 401]
    assert sign_in(world.olivia, code=app_code(-1)).status_code == 401, "nor is an earlier one"
    assert sign_in(world.olivia, code=app_code(1)).status_code == 200


@pytest.mark.parametrize("code", ["later", "earlier", "another app's", "000000x", "", "12345", "١٢٣٤٥٦"])
def test_what_is_not_the_apps_code_lets_nobody_in(world: World, code: str) -> None:
    enrol(world.olivia)
    codes = {"later": app_code(2), "earlier": app_code(-2), "another app's": app_code(0, b"x" * 20)}
    code = codes.get(code, code)
    assert sign_in(world.olivia, code=code).status_code == 401
    assert AuthToken.objects.count() == 0


def test_a_wrong_password_is_told_as_ever(world: World) -> None:
    """A refusal shows whether there is a second factor only after the first was right."""
    enrol(world.olivia)
    response = sign_in(world.olivia, password="not her password", code=app_code())
    assert response.json() == {"message": "Wrong e-mail address or password"}
    assert sign_in(world.olivia, code=app_code()).status_code == 200, "and the code is not used up"


def test_each_recovery_code_is_good_once(world: World) -> None:
    enrol(world.olivia, confirmed=False)
    codes = signed_in(world.olivia).post("/auth/two-factor/confirm", {"code": app_code()}).json()["recoveryCodes"]
    assert [sign_in(world.olivia, code=one).status_code for one in (codes[0], codes[0], codes[1].upper())] == [
        *(200, 401, 200),
    ]
    enrol(world.dana)
    assert sign_in(world.dana, code=codes[2]).status_code == 401, "and nobody else's"


class TestTries:
    """Codes have six digits: tries are bounded, and a stranger's do not lock the owner out."""

    @pytest.fixture(autouse=True)
    def _one_proxy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(api_settings, "NUM_PROXIES", 1)

    def sign_in_from(self, address: str, user: User, **fields: Any) -> int:
        body = {"email": user.email, "password": PASSWORD, **fields}
        return int(Caller().post("/auth/sign-in/email", body, **{"x-forwarded-for": address}).status_code)

    def use_up(self, limit: str, monkeypatch: pytest.MonkeyPatch, count: int = 3) -> None:
        rate = getattr(attempt_rate_limiter, limit)
        monkeypatch.setattr(attempt_rate_limiter, limit, replace(rate, count=count))

    @pytest.mark.parametrize("limit", ["CODE_PER_SOURCE", "CODE_PER_SOURCE_A_DAY"])
    def test_one_address_tries_so_often_and_others_go_on(
        self, world: World, limit: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.use_up(limit, monkeypatch)
        enrol(world.olivia)
        tries = [self.sign_in_from("203.0.113.1", world.olivia, code="000000") for _ in range(4)]
        assert tries == [401, 401, 401, 429]
        assert self.sign_in_from("203.0.113.1", world.olivia, code=app_code()) == 429
        assert self.sign_in_from("198.51.100.7", world.olivia, code=app_code()) == 200

    def test_many_addresses_together_try_no_more_and_the_owner_still_gets_in(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = add_passkey(signed_in(world.olivia))
        codes = two_factor.renew_recovery_codes(world.olivia)
        enrol_beside(world.olivia)
        assert self.sign_in_from("198.51.100.7", world.olivia, code=app_code(-1)) == 200
        # Her own try from there was a stranger's, too.
        self.use_up("CODE_FROM_STRANGERS_A_DAY", monkeypatch, 1 + 3)
        tries = [self.sign_in_from(f"203.0.113.{i}", world.olivia, code="000000") for i in range(4)]
        assert tries == [401, 401, 401, 429]
        assert self.sign_in_from("203.0.113.9", world.olivia, code=app_code()) == 429
        # From an address that she signed in from, and from anywhere with what cannot be guessed.
        assert self.sign_in_from("198.51.100.7", world.olivia, code=app_code()) == 200
        assert self.sign_in_from("203.0.113.9", world.olivia, code=codes[0]) == 200
        assert self.sign_in_from("203.0.113.10", world.olivia, passkey=answer(Caller(), made)) == 200
        # And in a session that she has.
        proof = {"password": PASSWORD, "code": app_code(1)}
        assert signed_in(world.olivia).post("/auth/two-factor/disable", proof).status_code == 200

    def test_what_is_no_code_of_an_app_is_tried_as_a_recovery_code(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.use_up("RECOVERY_CODE_PER_SOURCE", monkeypatch)
        enrol(world.olivia)
        tries = [self.sign_in_from("203.0.113.1", world.olivia, code="aaaaa-aaaaa") for _ in range(4)]
        assert tries == [401, 401, 401, 429]
        assert self.sign_in_from("203.0.113.1", world.olivia, code=app_code()) == 200

    def test_the_bound_by_day_is_what_the_documents_state(self) -> None:
        strangers, source = attempt_rate_limiter.CODE_FROM_STRANGERS_A_DAY, attempt_rate_limiter.CODE_PER_SOURCE_A_DAY
        assert (strangers.count, strangers.seconds, source.count, source.seconds) == (100, 86_400, 100, 86_400)

    def test_the_admin_counts_alike(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.use_up("CODE_FROM_STRANGERS_A_DAY", monkeypatch, 1)
        operator = create_operator(email="op@example.com", password=PASSWORD)
        enrol(operator)
        fields = {"username": operator.email, "password": PASSWORD}

        def enter(address: str, code: str) -> Client:
            browser = Client(headers={"x-forwarded-for": address})
            browser.post("/admin/login/", {**fields, "code": code})
            return browser

        enter("203.0.113.1", "000000")
        assert "_auth_user_id" not in enter("203.0.113.2", app_code()).session
        attempt_rate_limiter.remember_address(operator.email, "198.51.100.7")
        assert "_auth_user_id" in enter("198.51.100.7", app_code()).session

    def test_a_thief_of_one_session_does_not_lock_the_others(self, world: World) -> None:
        thief, owner = signed_in(world.olivia), signed_in(world.olivia)
        wrong = {"newPassword": "nine blue lanterns", "password": "not this one"}
        statuses = {thief.post("/auth/change-password", wrong).status_code for _ in range(10)}
        assert statuses == {401}
        assert thief.post("/auth/change-password", wrong).status_code == 429
        assert owner.post("/auth/change-password", {**wrong, "password": PASSWORD}).status_code == 200


def enrol_beside(user: User) -> None:
    """Give a user who has recovery codes the app as well."""
    row = TwoFactor.objects.get(user=user)
    row.sealed_secret, row.confirmed_at = encrypt(SECRET), timezone.now()
    row.save()


@pytest.mark.django_db(transaction=True)
def test_of_two_who_use_a_code_at_once_one_gets_in() -> None:
    user = make_user("Olivia")
    enrol(user)
    code, statuses = app_code(), []

    def try_once() -> None:
        statuses.append(sign_in(user, code=code).status_code)
        connection.close()

    threads = [Thread(target=try_once) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200, 401]


@pytest.mark.parametrize("body", [{"password": "not hers", "code": "<good>"}, {"password": PASSWORD, "code": "000000"}])
def test_it_is_turned_off_with_both_alone(world: World, body: dict[str, str]) -> None:
    """A stolen session is not enough."""
    enrol(world.olivia)
    caller = signed_in(world.olivia)
    given = {name: app_code() if value == "<good>" else value for name, value in body.items()}
    assert caller.post("/auth/two-factor/disable", given).status_code == 401
    assert TwoFactor.objects.count() == 1
    good = {"password": PASSWORD, "code": app_code()}
    assert caller.post("/auth/two-factor/disable", good).json() == {"message": "Two-factor authentication is off"}
    assert sign_in(world.olivia).status_code == 200


def test_a_stolen_session_cannot_turn_it_on_or_replace_it(world: World) -> None:
    caller = signed_in(world.olivia)
    assert caller.post("/auth/two-factor", {"password": "not hers"}).status_code == 401
    assert TwoFactor.objects.count() == 0
    enrol(world.olivia)
    assert caller.post("/auth/two-factor", {"password": PASSWORD}).status_code == 409
    assert caller.post("/auth/two-factor/confirm", {"code": app_code()}).status_code == 400
    assert sign_in(world.olivia, code=app_code()).status_code == 200


def test_the_admin_asks_for_it_too(db: None) -> None:
    operator = create_operator(email="op@example.com", password=PASSWORD)
    enrol(operator)
    body = {"username": operator.email, "password": PASSWORD, "next": "/admin/"}
    browser = Client()
    page = browser.post("/admin/login/", body)
    assert "Send the `code` of your authenticator app" in page.content.decode()
    assert "_auth_user_id" not in browser.session
    assert browser.post("/admin/login/", {**body, "code": "000000"}).status_code == 200
    assert "_auth_user_id" not in browser.session
    assert browser.post("/admin/login/", {**body, "code": app_code()}).headers["Location"] == "/admin/"
    assert browser.session["_auth_user_id"] == str(operator.pk)


def test_the_admin_shows_no_secret(db: None) -> None:
    operator = create_operator(email="op@example.com", password=PASSWORD)
    row = enrol(operator)
    browser = Client()
    browser.force_login(operator)
    page = browser.get(f"/admin/organizations/twofactor/{row.pk}/change/").content.decode()
    assert operator.email in page
    assert SECRET.decode() not in page
    assert bytes(row.sealed_secret).decode() not in page


def test_the_encryption_key_is_exchanged_under_it(world: World, settings: Any) -> None:
    enrol(world.olivia)
    old = settings.ENCRYPTION_KEYS
    new = Fernet.generate_key().decode()
    settings.ENCRYPTION_KEYS = [new, *old]
    call_command("rotate_provider_keys", stdout=StringIO())
    settings.ENCRYPTION_KEYS = [new]
    assert sign_in(world.olivia, code=app_code()).status_code == 200
    settings.ENCRYPTION_KEYS = old
    assert sign_in(world.olivia, code=app_code(1)).status_code == 401, "a key that is gone is no failure of ours"
