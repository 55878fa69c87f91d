"""Signing up, in and out by page: as the API counts and refuses, and with a new session each time."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core import mail
from knox.models import AuthToken

from apps.console.browser_session import COOKIE
from apps.organizations.accounts.account_emails import send_pending_emails
from apps.organizations.credentials.attempt_rate_limiter import count_sign_in
from apps.organizations.credentials.email_tokens import invitation_token
from apps.organizations.credentials.sessions import find_session, start_session
from apps.organizations.invitations import invite
from apps.organizations.models import Membership, Role, User
from tests.support.authenticator import app_code, enrol
from tests.support.cast import PASSWORD, World
from tests.support.console_client import Visitor, page, words

SIGN_IN, SIGN_UP = "/app/sign-in", "/app/sign-up"
NEW = {"name": "Nora", "email": "nora@example.com", "password": "nine blue lanterns"}


def sign_in(visitor: Visitor, email: str = "olivia@example.com", password: str = PASSWORD, **more: str) -> Any:
    return visitor.send(SIGN_IN, {"email": email, "password": password, **more})


def session_of(visitor: Visitor) -> Any:
    cookie = visitor.client.cookies.get(COOKIE)
    return find_session(cookie.value) if cookie and cookie.value else None


class TestSignIn:
    def test_the_password_opens_a_session_and_leads_home(self, world: World) -> None:
        visitor = Visitor()
        response = sign_in(visitor)
        assert (response.status_code, response["Location"]) == (302, "/app/")
        assert session_of(visitor).user == world.olivia

    def test_a_wrong_password_is_said_and_not_shown_again(self, world: World) -> None:
        visitor = Visitor()
        response = sign_in(visitor, password="not this one")
        assert response.status_code == 400
        assert "Wrong e-mail address or password" in words(response)
        assert b"olivia@example.com" in response.content
        assert b"not this one" not in response.content
        assert AuthToken.objects.count() == 0

    def test_whoever_guesses_is_locked_out_as_by_the_api(self, world: World) -> None:
        for _ in range(10):
            count_sign_in("olivia@example.com", "127.0.0.1")
        response = sign_in(Visitor())
        assert "Too many attempts; try again later" in words(response)
        assert AuthToken.objects.count() == 0

    def test_the_session_that_the_browser_brought_ends(self, world: World) -> None:
        visitor, planted = Visitor(), start_session(world.sam)
        visitor.client.cookies[COOKIE] = planted
        sign_in(visitor)
        assert visitor.client.cookies[COOKIE].value != planted
        assert find_session(planted) is None

    @pytest.mark.parametrize(
        "elsewhere", ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)", "evil"]
    )
    def test_next_leads_nowhere_else(self, world: World, elsewhere: str) -> None:
        assert sign_in(Visitor(), next=elsewhere)["Location"] == "/app/"

    def test_a_page_that_needs_a_session_comes_back_after_it(self, world: World) -> None:
        visitor, wanted = Visitor(), page(world.acme, "keys?show=mine")
        led = visitor.open(wanted)
        assert led.status_code == 302
        assert urlsplit(led["Location"]).path == SIGN_IN
        following = parse_qs(urlsplit(led["Location"]).query)["next"][0]
        assert following == wanted
        assert sign_in(visitor, next=following)["Location"] == wanted

    def test_the_second_factor_is_asked_for_without_the_password_again(self, world: World) -> None:
        enrol(world.olivia)
        visitor = Visitor()
        asked = sign_in(visitor)
        assert asked.status_code == 200
        assert session_of(visitor) is None
        step = asked.context["step"]
        wrong = visitor.send(SIGN_IN, {"step": step, "code": "000000"})
        assert "Wrong code" in words(wrong)
        assert session_of(visitor) is None
        right = visitor.send(SIGN_IN, {"step": step, "code": app_code()})
        assert right.status_code == 302
        assert session_of(visitor).user == world.olivia

    def test_a_step_that_nobody_gave_is_none(self, world: World) -> None:
        visitor = Visitor()
        response = visitor.send(SIGN_IN, {"step": "made-up", "code": "123456"})
        assert response.status_code == 400
        assert session_of(visitor) is None

    def test_a_form_of_another_site_is_refused(self, world: World) -> None:
        visitor = Visitor(check_forgery=True)
        assert sign_in(visitor).status_code == 403
        assert AuthToken.objects.count() == 0


class TestSignUp:
    def test_it_makes_account_organization_and_session(self, db: None) -> None:
        visitor = Visitor()
        response = visitor.send(SIGN_UP, NEW)
        assert response.status_code == 302
        user = User.objects.get()
        assert (user.email, user.name) == ("nora@example.com", "Nora")
        assert session_of(visitor).user == user
        home = visitor.open("/app/")
        assert home["Location"] == f"/app/o/{Membership.objects.get().organization_id}/"

    def test_a_weak_password_and_a_known_address_are_said_beside_their_fields(self, world: World) -> None:
        weak = Visitor().send(SIGN_UP, {**NEW, "password": "12345"})
        assert weak.status_code == 400
        assert "too short" in weak.context["form"].errors["password"]
        known = Visitor().send(SIGN_UP, {**NEW, "email": "sam@example.com"})
        assert "already exists" in known.context["form"].errors["email"]
        assert not User.objects.filter(email=NEW["email"]).exists()

    def test_where_addresses_are_confirmed_a_message_comes_first(self, db: None, settings: Any) -> None:
        settings.EMAIL_VERIFICATION = True
        visitor = Visitor()
        sent = words(visitor.send(SIGN_UP, NEW))
        assert "We sent a message to nora@example.com" in sent
        assert session_of(visitor) is None
        User.objects.update(verification_wanted_at=None)
        again = visitor.send("/app/send-verification", {"email": NEW["email"]})
        assert again["Location"] == SIGN_IN
        assert User.objects.get().verification_wanted_at is not None
        refused = visitor.send(SIGN_IN, {"email": NEW["email"], "password": NEW["password"]})
        assert "the address is not confirmed yet" in words(refused)
        assert session_of(visitor) is None
        assert "not a valid e-mail address" in words(
            visitor.open(visitor.send("/app/send-verification", {"email": "x"})["Location"])
        )

    def test_by_invitation_the_link_is_the_way_in(self, world: World, settings: Any) -> None:
        settings.SIGN_UP = "invite"
        assert "Sign-up is by invitation" in words(Visitor().open(SIGN_UP))
        assert Visitor().send(SIGN_UP, NEW).status_code == 400
        invitation = invite(email=NEW["email"], organization=world.acme, role=Role.ADMIN, by=world.olivia)
        send_pending_emails()
        assert f"/app/sign-up?invitation={invitation_token(invitation)[:20]}" in str(mail.outbox[0].body)
        visitor = Visitor()
        opened = visitor.open(SIGN_UP, invitation=invitation_token(invitation), email=NEW["email"])
        assert opened.context["form"].values["email"] == NEW["email"]
        assert "You are invited to Acme" in words(opened)
        entered = visitor.send(SIGN_UP, {**NEW, "invitation": invitation_token(invitation)})
        assert (entered.status_code, entered["Location"]) == (302, f"/app/o/{world.acme.id}/")
        # A link that was used says no more of what it was for.
        assert "Acme" not in words(Visitor().open(SIGN_UP, invitation=invitation_token(invitation)))
        assert Membership.objects.get(organization=world.acme, user__email=NEW["email"]).role == Role.ADMIN

    def test_where_it_is_closed_there_is_no_form(self, db: None, settings: Any) -> None:
        settings.SIGN_UP = "closed"
        assert b"<form" not in Visitor().open(SIGN_UP).content
        assert Visitor().send(SIGN_UP, NEW).status_code == 400
        assert User.objects.count() == 0


def test_signing_out_ends_the_session_and_takes_a_form(world: World) -> None:
    visitor = Visitor(world.olivia)
    assert visitor.open("/app/sign-out")["Location"] == "/app/"
    assert session_of(visitor) is not None
    visitor.send("/app/sign-out")
    assert AuthToken.objects.count() == 0
    assert session_of(visitor) is None


def test_a_forgotten_password_is_answered_alike_for_everybody(world: World) -> None:
    answers = [
        words(Visitor().send("/app/forgot-password", {"email": email}))
        for email in ("olivia@example.com", "nobody@example.com")
    ]
    assert answers[0] == answers[1]
    assert list(User.objects.exclude(password_reset_wanted_at=None)) == [world.olivia]


def test_an_invitation_is_accepted_by_whom_it_was_sent_to_and_nobody_else(world: World) -> None:
    for user in (world.sam, world.dana):
        user.email_verified_at = user.created_at
        user.save()
    invitation = invite(email="sam@example.com", organization=world.acme, by=world.olivia)
    path = f"/app/invitations/{world.acme.id}/{invitation.id}"
    other = Visitor(world.dana)
    assert other.open(path).status_code == 404
    assert other.send(path).status_code == 400
    assert not Membership.objects.filter(organization=world.acme, user=world.sam).exists()
    visitor = Visitor(world.sam)
    assert "Join Acme" in words(visitor.open(path))
    assert "Join Acme" in words(visitor.open("/app/organizations"))
    assert visitor.send(path)["Location"] == page(world.acme)
    assert Membership.objects.get(organization=world.acme, user=world.sam).role == Role.DEVELOPER
