"""Accounts and sessions: sign-up, sign-in, sign-out, get-session (section 2)."""

from __future__ import annotations

from datetime import datetime, timedelta
from threading import Thread
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from knox.models import AuthToken
from rest_framework.settings import api_settings

from apps.kernel.ids import new_id
from apps.organizations.credentials import attempt_rate_limiter
from apps.organizations.credentials.sessions import start_session
from apps.organizations.models import Membership, Mode, Organization, Project, Role, User
from tests.support.cast import PASSWORD, Caller, World, make_user

OLIVIA = {"name": "Olivia", "email": "Olivia@Example.com", "password": PASSWORD}


def sign_up(**changes: Any) -> Any:
    """Sign Olivia up and return the answer."""
    response = Caller().post("/auth/sign-up/email", {**OLIVIA, **changes})
    assert response.status_code == 200, response.content
    return response.json()


def believe_one_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Believe the address that the outermost proxy has seen."""
    monkeypatch.setattr(api_settings, "NUM_PROXIES", 1)


def from_address(address: str, body: dict[str, str]) -> Any:
    """Try to sign in from an address."""
    return Caller().post("/auth/sign-in/email", body, **{"x-forwarded-for": address})


@pytest.mark.django_db
class TestSignUp:
    def test_it_answers_with_a_token_and_the_user(self) -> None:
        answer = sign_up()
        user = User.objects.get()
        assert set(answer) == {"token", "user"}
        assert answer["user"] == {
            "id": str(user.id),
            "name": "Olivia",
            "email": "olivia@example.com",
            "createdAt": user.created_at.isoformat().replace("+00:00", "Z"),
        }
        assert Caller(answer["token"]).get("/auth/get-session").json()["user"] == {
            **answer["user"],
            "emailVerified": True,
        }

    def test_the_first_sign_up_creates_default_organization_and_default_project(self) -> None:
        sign_up()
        organization, project = Organization.objects.get(), Project.objects.get()
        assert (organization.name, organization.billing_email) == ("Default Organization", "olivia@example.com")
        assert (project.name, project.organization, project.mode) == ("Default Project", organization, Mode.HYBRID)
        membership = Membership.objects.get()
        assert (membership.user, membership.organization, membership.role) == (
            User.objects.get(),
            organization,
            Role.OWNER,
        )

    def test_neither_token_nor_password_is_stored_in_clear(self) -> None:
        token = sign_up()["token"]
        session = AuthToken.objects.get()
        assert token not in f"{session.digest} {session.token_key}"
        assert PASSWORD not in User.objects.get().password

    def test_a_known_address_is_refused_whatever_its_case(self) -> None:
        sign_up()
        response = Caller().post("/auth/sign-up/email", {**OLIVIA, "email": "OLIVIA@example.COM "})
        assert response.status_code == 409
        assert response.json() == {"message": "An account with this e-mail address already exists"}
        assert (User.objects.count(), Organization.objects.count(), AuthToken.objects.count()) == (1, 1, 1)

    @pytest.mark.parametrize(
        ("field", "value", "message"),
        [
            ("name", None, "Must not be null"),
            ("name", "", "Must not be blank"),
            ("name", "x" * 256, "Must be at most 255 characters long"),
            ("name", 7, "Must be a string"),
            ("name", "nul\0", "Must not have null characters"),
            ("email", "nobody", "Must be an e-mail address"),
            ("password", "short", "This password is too short. It must contain at least 8 characters."),
            ("password", "password123", "This password is too common."),
            ("password", 12345678, "Must be a string"),
        ],
    )
    def test_a_bad_field_is_named(self, field: str, value: Any, message: str) -> None:
        response = Caller().post("/auth/sign-up/email", {**OLIVIA, field: value})
        assert response.status_code == 400
        assert response.json()["issues"][0] == {"path": field, "message": message}
        assert response.json()["message"] == f"Invalid request parameters: {field}: {message}"
        assert User.objects.count() == 0

    def test_a_missing_field_is_required(self) -> None:
        response = Caller().post("/auth/sign-up/email", {"name": "Olivia", "password": PASSWORD})
        assert response.status_code == 400
        assert response.json() == {
            "message": "Invalid request parameters: email: Required",
            "issues": [{"path": "email", "message": "Required"}],
        }

    def test_a_referring_organization_is_recorded_when_it_exists(self, world: World) -> None:
        sign_up(email="new@example.com", ref=str(world.acme.id))
        sign_up(email="other@example.com", ref=str(new_id()))
        sign_up(email="third@example.com", ref="nonsense")
        assert Organization.objects.get(billing_email="new@example.com").referred_by == world.acme
        assert Organization.objects.get(billing_email="other@example.com").referred_by is None
        assert Organization.objects.get(billing_email="third@example.com").referred_by is None


@pytest.mark.django_db(transaction=True)
def test_of_two_sign_ups_at_once_with_one_address_one_wins() -> None:
    statuses: list[int] = []

    def try_once() -> None:
        statuses.append(Caller().post("/auth/sign-up/email", OLIVIA).status_code)
        connection.close()

    threads = [Thread(target=try_once) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200, 409]
    assert (User.objects.count(), Organization.objects.count(), Project.objects.count()) == (1, 1, 1)


class TestSignIn:
    def test_it_answers_like_sign_up(self, world: World) -> None:
        response = Caller().post("/auth/sign-in/email", {"email": " OLIVIA@example.com", "password": PASSWORD})
        assert response.status_code == 200
        assert set(response.json()) == {"token", "user"}
        assert response.json()["user"]["id"] == str(world.olivia.id)
        assert AuthToken.objects.get().user == world.olivia

    @pytest.mark.parametrize(
        ("email", "password"), [("olivia@example.com", "not her password"), ("nobody@example.com", PASSWORD)]
    )
    def test_wrong_password_and_unknown_address_are_told_alike(self, world: World, email: str, password: str) -> None:
        response = Caller().post("/auth/sign-in/email", {"email": email, "password": password})
        assert response.status_code == 401
        assert response.json() == {"message": "Wrong e-mail address or password"}
        assert AuthToken.objects.count() == 0

    def test_an_unknown_address_costs_as_much_hashing_as_a_wrong_password(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Counted, not timed: each costs exactly one run of the hash."""
        from django.contrib.auth.hashers import get_hasher

        runs, hasher = list[str](), type(get_hasher())
        encode = hasher.encode

        def counted(self: Any, password: str, *settings: Any) -> str:
            runs.append(password)
            return encode(self, password, *settings)

        monkeypatch.setattr(hasher, "encode", counted)
        for email in ("olivia@example.com", "nobody@example.com"):
            runs.clear()
            Caller().post("/auth/sign-in/email", {"email": email, "password": "not her password"})
            assert len(runs) == 1, email

    def test_a_user_who_is_not_active_stays_out(self, world: World) -> None:
        world.dana.is_active = False
        world.dana.save()
        response = Caller().post("/auth/sign-in/email", {"email": world.dana.email, "password": PASSWORD})
        assert response.status_code == 401

    def test_wrong_passwords_do_not_lock_the_owner_out(
        self, world: World, monkeypatch: pytest.MonkeyPatch, settings: Any
    ) -> None:
        """Wrong guesses lock out only the guesser's address: the owner signs in from another one."""
        believe_one_proxy(monkeypatch)
        wrong, right = ({"email": "olivia@example.com", "password": one} for one in ("not her password", PASSWORD))
        guesses = [from_address("203.0.113.7", wrong).status_code for _ in range(12)]
        assert guesses == [401] * 10 + [429] * 2
        assert from_address("203.0.113.7", right).status_code == 429, "where guesses came from, the right one is late"
        assert from_address("198.51.100.1", right).status_code == 200

    def test_guesses_from_everywhere_do_not_lock_out_who_was_there_before(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        believe_one_proxy(monkeypatch)
        monkeypatch.setattr(
            attempt_rate_limiter, "SIGN_IN_PER_ACCOUNT", attempt_rate_limiter.AttemptLimit("sign-in:account", 3, 3_600)
        )
        wrong, right = ({"email": "olivia@example.com", "password": one} for one in ("not her password", PASSWORD))
        assert from_address("198.51.100.1", right).status_code == 200
        guesses = [from_address(f"203.0.113.{number}", wrong).status_code for number in range(4)]
        assert guesses == [401, 401, 429, 429], "the first of three was hers"
        assert from_address("198.51.100.1", right).status_code == 200
        assert from_address("198.51.100.2", right).status_code == 429
        assert from_address("203.0.113.9", {**wrong, "email": "dana@example.com"}).status_code == 401

    def test_tries_are_throttled_per_account(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            attempt_rate_limiter, "SIGN_IN_PER_ACCOUNT", attempt_rate_limiter.AttemptLimit("sign-in:account", 2)
        )
        body = {"email": "olivia@example.com", "password": "not her password"}
        assert [Caller().post("/auth/sign-in/email", body).status_code for _ in range(2)] == [401, 401]
        # The right password, in another spelling of the address, from another address: still the same account.
        response = Caller().post("/auth/sign-in/email", {"email": "OLIVIA@example.com", "password": PASSWORD})
        assert response.status_code == 429
        assert response.json() == {"message": "Too many attempts; try again later"}
        assert 50 <= int(response["Retry-After"]) <= 60
        assert AuthToken.objects.count() == 0
        other = Caller().post("/auth/sign-in/email", {"email": "dana@example.com", "password": PASSWORD})
        assert other.status_code == 200

    def test_tries_are_throttled_per_address(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            attempt_rate_limiter, "SIGN_IN_PER_ADDRESS", attempt_rate_limiter.AttemptLimit("sign-in:address", 1)
        )
        first = Caller().post("/auth/sign-in/email", {"email": "nobody@example.com", "password": "x"})
        # Forwarding headers from a client do not change its address.
        second = Caller().post(
            "/auth/sign-in/email",
            {"email": "dana@example.com", "password": PASSWORD},
            **{"x-forwarded-for": "203.0.113.9"},
        )
        assert [first.status_code, second.status_code] == [401, 429]


def test_sign_ups_are_throttled_per_address(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        attempt_rate_limiter, "SIGN_UP_PER_ADDRESS", attempt_rate_limiter.AttemptLimit("sign-up:address", 1)
    )
    sign_up()
    response = Caller().post("/auth/sign-up/email", {**OLIVIA, "email": "another@example.com"})
    assert response.status_code == 429
    assert int(response["Retry-After"]) >= 1
    assert User.objects.count() == 1


class TestSession:
    def test_get_session_tells_the_user_and_the_end(self, world: World) -> None:
        token = start_session(world.dana)
        response = Caller(token).get("/auth/get-session")
        assert response.status_code == 200
        assert set(response.json()) == {"session", "user"}
        assert response.json()["user"]["email"] == "dana@example.com"
        end = datetime.fromisoformat(response.json()["session"]["expiresAt"])
        assert abs(end - timezone.now() - timedelta(days=30)) < timedelta(minutes=1)

    def test_use_extends_it(self, world: World) -> None:
        token = start_session(world.dana)
        AuthToken.objects.update(expiry=timezone.now() + timedelta(minutes=5))
        assert Caller(token).get("/organization").status_code == 200
        assert AuthToken.objects.get().expiry > timezone.now() + timedelta(days=29, hours=23)

    def test_an_expired_one_is_refused(self, world: World) -> None:
        token = start_session(world.dana)
        AuthToken.objects.update(expiry=timezone.now() - timedelta(seconds=1))
        assert Caller(token).get("/organization").status_code == 401

    def test_sign_out_ends_this_session_alone(self, world: World) -> None:
        one, other = start_session(world.dana), start_session(world.dana)
        response = Caller(one).post("/auth/sign-out")
        assert (response.status_code, response.json()) == (200, {"message": "Signed out"})
        assert Caller(one).get("/auth/get-session").status_code == 401
        assert Caller(other).get("/auth/get-session").status_code == 200

    @pytest.mark.parametrize(
        "header",
        [
            None,
            "",
            "Bearer",
            "Bearer ",
            "Bearer nonsense",
            "Basic b2xpdmlhOnNlY3JldA==",
            "Bearer two words",
            f"Bearer {'x' * 600}",
            "Bearer Ã©\udcff".encode("utf-8", "surrogateescape").decode("latin-1"),
        ],
    )
    def test_without_a_good_token_it_is_401(self, world: World, header: str | None) -> None:
        start_session(world.olivia)
        from django.test import Client

        response = Client().get("/organization", headers={} if header is None else {"authorization": header})
        assert response.status_code == 401
        assert response.json() == {"message": "Missing or invalid session token or management key"}
        assert response["WWW-Authenticate"] == "Bearer"

    def test_a_user_who_is_no_longer_active_is_out_at_once(self, db: None) -> None:
        user = make_user("Dana")
        token = start_session(user)
        user.is_active = False
        user.save()
        assert Caller(token).get("/auth/get-session").status_code == 401
