"""Credential changes: sessions and grants that began under a user's credentials end with them."""

from __future__ import annotations

import re
from base64 import b32decode
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from apps.keys.authenticate import find_api_key, works
from apps.keys.models import ApiKey
from apps.oauth.access import authenticate_access_token
from apps.oauth.models import AuthorizationCode, Consent, KeyCode, RefreshToken
from apps.oauth.resources import resource_of
from apps.organizations.accounts import entrance
from apps.organizations.accounts.account_emails import send_pending_emails
from apps.organizations.actions import create_operator, reset_password, set_password
from apps.organizations.credentials import attempt_rate_limiter
from apps.organizations.credentials.email_tokens import reset_token
from apps.organizations.credentials.sessions import find_session, start_session
from apps.organizations.models import Membership, Role, TwoFactor, User
from tests.oauth.test_key_exchange import allowed, exchange
from tests.support.authenticator import app_code, enrol
from tests.support.cast import PASSWORD, Caller, World, join, make_key, make_user, signed_in
from tests.support.console_client import Visitor
from tests.support.oauth_client import Program, query_of, registered
from tests.support.webauthn_authenticator import NO_CEREMONY, Authenticator, add_passkey, registration

NEW, EVIL = "nine blue lanterns", "evil@sea.example"


def change(user: User) -> None:
    """Choose another password, as the user's page does."""
    answer = signed_in(user).post("/auth/change-password", {"password": PASSWORD, "newPassword": NEW})
    assert answer.status_code == 200


def reset(user: User) -> None:
    """Choose another password by the link of a message."""
    answer = Caller().post("/auth/reset-password", {"token": reset_token(user), "password": NEW})
    assert answer.status_code == 200


def by_operator(user: User) -> None:
    """Have an operator set it on the user's page of the admin."""
    operator = Client()
    operator.force_login(create_operator(email="op@example.com", password=PASSWORD))
    fields = {"usable_password": "true", "password1": NEW, "password2": NEW}
    assert operator.post(f"/admin/organizations/user/{user.pk}/password/", fields).status_code == 302


def by_command(user: User) -> None:
    """Set it with Django's own command."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("getpass.getpass", lambda prompt: NEW)
        call_command("changepassword", user.email)


def add_app(user: User) -> None:
    """Turn an authenticator app on."""
    caller = signed_in(user)
    secret = b32decode(caller.post("/auth/two-factor", {"password": PASSWORD}).json()["secret"])
    assert caller.post("/auth/two-factor/confirm", {"code": app_code(secret=secret)}).status_code == 200


def add_a_passkey(user: User) -> None:
    """Add a passkey."""
    add_passkey(signed_in(user))


PASSWORD_CHANGES = [change, reset, by_operator, by_command]
FACTOR_CHANGES = [add_app, add_a_passkey]
Change = Callable[[User], None]


def token_to(address: str) -> str:
    (message,) = [one for one in mail.outbox if one.to == [address]]
    found = re.search(r"token=(\S+)", str(message.body))
    assert found is not None
    return found[1]


class TestAPendingEmailChange:
    @pytest.mark.parametrize("credentials_change", [*PASSWORD_CHANGES, *FACTOR_CHANGES])
    def test_its_token_ends_with_the_credentials_under_which_it_was_asked_for(
        self, world: World, credentials_change: Change
    ) -> None:
        thief = signed_in(world.olivia)
        assert thief.post("/auth/change-email", {"newEmail": EVIL, "password": PASSWORD}).status_code == 200
        send_pending_emails()
        token = token_to(EVIL)
        credentials_change(world.olivia)
        refused = Caller().post("/auth/change-email/confirm", {"token": token})
        assert refused.status_code == 400
        assert refused.json()["message"].startswith("This token was used or is too old")
        world.olivia.refresh_from_db()
        assert (world.olivia.email, world.olivia.wanted_email) == ("olivia@example.com", "")
        # Nor does it come back when the owner asks for another address.
        User.objects.filter(pk=world.olivia.pk).update(wanted_email=EVIL)
        assert Caller().post("/auth/change-email/confirm", {"token": token}).status_code == 400

    @pytest.mark.parametrize("credentials_change", [change, reset, add_app, add_a_passkey])
    def test_one_that_no_message_was_sent_for_is_forgotten(self, world: World, credentials_change: Change) -> None:
        signed_in(world.olivia).post("/auth/change-email", {"newEmail": EVIL, "password": PASSWORD})
        credentials_change(world.olivia)
        assert send_pending_emails() == 0
        assert mail.outbox == []
        world.olivia.refresh_from_db()
        assert (world.olivia.wanted_email, world.olivia.email_change_wanted_at) == ("", None)

    def test_the_address_ends_tokens_for_another_password(self, world: World) -> None:
        token = reset_token(world.olivia)
        signed_in(world.olivia).post("/auth/change-email", {"newEmail": "o@sea.example", "password": PASSWORD})
        send_pending_emails()
        assert Caller().post("/auth/change-email/confirm", {"token": token_to("o@sea.example")}).status_code == 200
        assert not reset_password(token=token, password=NEW)
        world.olivia.refresh_from_db()
        assert world.olivia.check_password(PASSWORD)


class TestSessionsAndSteps:
    @pytest.mark.parametrize("password_change", PASSWORD_CHANGES)
    def test_another_password_ends_sessions_and_second_steps(self, world: World, password_change: Change) -> None:
        session, step = start_session(world.olivia), entrance.second_step_token(world.olivia)
        others = start_session(world.sam)
        attempt_rate_limiter.remember_address(world.olivia.email, "192.0.2.7")
        password_change(world.olivia)
        assert find_session(session) is None
        assert find_session(others) is not None
        with pytest.raises(Exception, match="That took too long"):
            entrance.find_second_step(step)
        assert not attempt_rate_limiter.is_known(world.olivia.email, "192.0.2.7")

    @pytest.mark.parametrize("password_change", PASSWORD_CHANGES)
    def test_another_password_ends_sessions_of_the_admin(self, db: None, password_change: Change) -> None:
        operator, browser = create_operator(email="other@example.com", password=PASSWORD), Client()
        browser.force_login(operator)
        assert browser.get("/admin/").status_code == 200
        password_change(operator)
        assert browser.get("/admin/").status_code == 302

    def test_who_was_switched_off_comes_back_without_old_sessions(self, world: World) -> None:
        operator, session, browser = Client(), start_session(world.dana), Client()
        operator.force_login(create_operator(email="op@example.com", password=PASSWORD))
        browser.force_login(world.dana)
        path = f"/admin/organizations/user/{world.dana.pk}/change/"
        form = operator.get(path).context["adminform"].form
        fields = {name: value for name, value in form.initial.items() if isinstance(value, str)}
        assert operator.post(path, fields).status_code == 302
        world.dana.refresh_from_db()
        assert world.dana.is_active is False
        assert operator.post(path, {**fields, "is_active": "on"}).status_code == 302
        world.dana.refresh_from_db()
        assert world.dana.is_active is True
        assert find_session(session) is None
        assert "_auth_user_id" not in browser.session


class TestCeremoniesAndProofs:
    def test_a_passkey_begun_with_the_password_alone_is_not_added_once_there_is_a_second_factor(
        self, world: World
    ) -> None:
        thief = signed_in(world.olivia)
        body = registration(thief, Authenticator())
        enrol(world.olivia)
        assert thief.post("/auth/passkeys", body).json() == NO_CEREMONY
        assert world.olivia.passkeys.count() == 0

    def test_a_proof_of_the_password_alone_does_not_do_once_there_is_a_second_factor(self, world: World) -> None:
        thief, page = Visitor(world.olivia), "/app/account/sign-in-methods"
        thief.send(page, {"action": "prove", "password": PASSWORD})
        add_app(world.olivia)
        thief.send(page, {"action": "disable"})
        assert TwoFactor.objects.get(user=world.olivia).confirmed_at is not None

    def test_who_changes_a_factor_goes_on_with_the_proof(self, world: World) -> None:
        visitor, page = Visitor(world.olivia), "/app/account/sign-in-methods"
        visitor.send(page, {"action": "prove", "password": PASSWORD})
        secret = b32decode(visitor.send(page, {"action": "begin"}).context["enrolment"].secret)
        assert visitor.send(page, {"action": "confirm", "code": app_code(secret=secret)}).status_code == 200
        visitor.send(page, {"action": "disable"})
        assert not TwoFactor.objects.filter(user=world.olivia).exists()

    @pytest.mark.parametrize("credentials_change", [*PASSWORD_CHANGES, add_a_passkey])
    def test_an_app_that_was_begun_before_is_not_confirmed(self, world: World, credentials_change: Change) -> None:
        thief = signed_in(world.olivia)
        secret = b32decode(thief.post("/auth/two-factor", {"password": PASSWORD}).json()["secret"])
        credentials_change(world.olivia)
        # A session that the thief got in another way.
        refused = signed_in(world.olivia).post("/auth/two-factor/confirm", {"code": app_code(secret=secret)})
        assert (refused.status_code, refused.json()["message"]) == (400, "Begin with POST /auth/two-factor")
        assert not TwoFactor.objects.exclude(confirmed_at=None).exists()

    def test_an_app_is_confirmed_within_an_hour_or_not_at_all(self, world: World) -> None:
        caller = signed_in(world.olivia)
        secret = b32decode(caller.post("/auth/two-factor", {"password": PASSWORD}).json()["secret"])
        TwoFactor.objects.update(created_at=timezone.now() - timedelta(minutes=61))
        assert caller.post("/auth/two-factor/confirm", {"code": app_code(secret=secret)}).status_code == 400
        again = b32decode(caller.post("/auth/two-factor", {"password": PASSWORD}).json()["secret"])
        assert caller.post("/auth/two-factor/confirm", {"code": app_code(secret=again)}).status_code == 200


class TestPrograms:
    @pytest.mark.parametrize("password_change", PASSWORD_CHANGES)
    def test_another_password_signs_them_out_and_leaves_api_keys(self, world: World, password_change: Change) -> None:
        kept = make_key(world.dana, world.project)
        program = Program()
        tokens = program.signed_in_by(world.dana, world.project)
        others = Program().signed_in_by(world.adam, world.project)
        unused = query_of(program.allowed_by(world.dana, world.project))["code"]
        key_code = query_of(allowed(world))["code"]
        password_change(world.dana)
        mcp = resource_of("/mcp")
        assert authenticate_access_token(tokens["access_token"], resource=mcp) is None
        assert authenticate_access_token(others["access_token"], resource=mcp) is not None
        assert program.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"
        assert program.exchange(unused).json()["error"] == "invalid_grant"
        assert exchange(key_code).status_code == 403
        (consent,) = Consent.objects.filter(user=world.dana)
        assert (consent.revoked_at is not None, consent.api_key.status) == (True, ApiKey.Status.DELETED)
        found = find_api_key(kept.token)
        assert found is not None
        assert works(found)

    def test_removal_from_the_organization_ends_what_was_given_for_it(self, world: World) -> None:
        program = registered()
        unused = query_of(program.allowed_by(world.dana, world.project))["code"]
        key_code = query_of(allowed(world))["code"]
        dana = Membership.objects.get(user=world.dana)
        path = f"/organization/{world.acme.id}/members/{dana.id}"
        assert signed_in(world.olivia).send("DELETE", path, {}).status_code == 200
        assert program.exchange(unused).json()["error"] == "invalid_grant"
        # A member who comes back later finds none of it in force.
        join(world.acme, world.dana, Role.DEVELOPER)
        assert exchange(key_code).status_code == 403
        assert (AuthorizationCode.objects.count(), KeyCode.objects.count(), RefreshToken.objects.count()) == (0, 0, 0)
        assert not ApiKey.objects.exclude(status=ApiKey.Status.DELETED).exists()


class TestInvitations:
    def invite(self, world: World, by: User, role: str = "admin") -> str:
        path = f"/organization/{world.acme.id}/invitations"
        answer = signed_in(by).post(path, {"email": "nina@example.com", "role": role})
        assert answer.status_code == 200
        return f"{path}/{answer.json()['invitation']['id']}/accept"

    def is_accepted(self, world: World, path: str) -> bool:
        nina = User.objects.filter(email="nina@example.com").first() or make_user("Nina")
        status = signed_in(nina).post(path).status_code
        assert status in {200, 404}
        assert Membership.objects.filter(user=nina).exists() == (status == 200)
        return bool(status == 200)

    def test_one_ends_with_the_membership_of_who_gave_it(self, world: World) -> None:
        path = self.invite(world, world.adam)
        adam = Membership.objects.get(user=world.adam)
        signed_in(world.olivia).send("DELETE", f"/organization/{world.acme.id}/members/{adam.id}", {})
        assert not self.is_accepted(world, path)
        assert signed_in(world.olivia).get(path.rsplit("/", 2)[0]).json() == {"invitations": []}

    def test_one_ends_with_the_role_that_could_give_it(self, world: World) -> None:
        path, adam = self.invite(world, world.adam), Membership.objects.filter(user=world.adam)
        adam.update(role=Role.DEVELOPER)
        assert not self.is_accepted(world, path)
        adam.update(role=Role.OWNER)
        assert self.is_accepted(world, path)

    def test_an_owners_to_be_owner_ends_when_they_are_no_owner(self, world: World) -> None:
        join_as_owner = Membership.objects.filter(user=world.adam)
        join_as_owner.update(role=Role.OWNER)
        path = self.invite(world, world.adam, "owner")
        join_as_owner.update(role=Role.ADMIN)
        assert not self.is_accepted(world, path)

    def test_one_ends_when_who_gave_it_is_switched_off(self, world: World) -> None:
        path = self.invite(world, world.adam)
        User.objects.filter(pk=world.adam.pk).update(is_active=False)
        assert not self.is_accepted(world, path)


def test_setting_a_password_for_a_user_ends_the_same(world: World) -> None:
    session: Any = start_session(world.sam)
    set_password(user=world.sam, password=NEW)
    assert find_session(session) is None
