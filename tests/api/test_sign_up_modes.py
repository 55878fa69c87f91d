"""Sign-up modes (open, by invitation, closed), and the rights of an unconfirmed address (section 2)."""

from __future__ import annotations

import re
from datetime import timedelta
from io import StringIO
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlencode

import pytest
from django.core import mail
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client, override_settings
from django.utils import timezone

from apps.kernel.errors import Forbidden
from apps.keys.models import ApiKey
from apps.oauth.models import Consent
from apps.organizations.accounts import account_emails
from apps.organizations.accounts.entrance import accept_invitation
from apps.organizations.actions import create_operator
from apps.organizations.credentials import attempt_rate_limiter
from apps.organizations.credentials.email_tokens import invitation_token, reset_token, verification_token
from apps.organizations.invitations import invite
from apps.organizations.models import Invitation, Membership, Organization, Role, TwoFactor, User
from tests.support.cast import PASSWORD, Caller, World, make_key, signed_in
from tests.support.console_client import Visitor, words
from tests.support.oauth_client import Program
from tests.support.webauthn_authenticator import add_passkey, answer

NEW = {"name": "Nina", "email": "nina@example.com", "password": PASSWORD}
ANSWERED = {
    "token": None,
    "user": None,
    "message": "Open the link that was sent to this address, then sign in",
}


def sign_up(**changes: Any) -> Any:
    return Caller().post("/auth/sign-up/email", {**NEW, **changes})


def sign_in(**changes: str) -> Any:
    return Caller().post("/auth/sign-in/email", {"email": NEW["email"], "password": PASSWORD, **changes})


def counts() -> tuple[int, int, int]:
    return User.objects.count(), Organization.objects.count(), Membership.objects.count()


def token_in(text: str) -> str:
    found = re.search(r"[?&](?:token|invitation)=([^&\s]+)", text)
    assert found is not None
    return unquote(found[1])


@pytest.mark.parametrize("mode", ["invite", "closed"])
@pytest.mark.parametrize("email", ["nina@example.com", "olivia@example.com"])
def test_nobody_signs_up_uninvited(world: World, settings: Any, mode: str, email: str) -> None:
    """The answer is the same for an address that has an account."""
    settings.SIGN_UP = mode
    before = counts()
    response = sign_up(email=email)
    assert response.status_code == 403
    assert response.json() == {
        "message": {
            "invite": "Sign-up is by invitation: send the `invitation` token from the link in your e-mail",
            "closed": "Sign-up is closed: the operator creates accounts",
        }[mode]
    }
    assert counts() == before


def test_closed_is_closed_to_the_invited_too(world: World, settings: Any) -> None:
    settings.SIGN_UP = "closed"
    token = invitation_token(invite(email=NEW["email"], organization=world.acme))
    assert sign_up(invitation=token).status_code == 403
    assert not User.objects.filter(email=NEW["email"]).exists()


def test_an_admin_invites_and_whoever_it_is_signs_up_and_is_a_member(
    world: World, settings: Any, mailoutbox: Any
) -> None:
    settings.SIGN_UP, settings.EMAIL_VERIFICATION = "invite", True
    User.objects.update(email_verified_at=timezone.now())
    path = f"/organization/{world.acme.id}/invitations"
    response = signed_in(world.adam).post(path, {"email": "Nina@Example.com", "role": "developer"})
    assert response.status_code == 200
    shown = response.json()["invitation"]
    assert (shown["email"], shown["role"], "token" in shown) == ("nina@example.com", "developer", False)
    assert account_emails.send_pending_emails() == 1
    assert account_emails.send_pending_emails() == 0
    (message,) = mail.outbox
    assert message.to == ["nina@example.com"]
    signed_up = sign_up(invitation=token_in(message.body))
    assert signed_up.status_code == 200
    signed_in_as = Caller(signed_up.json()["token"]).get("/auth/get-session").json()["user"]
    assert signed_in_as["emailVerified"] is True
    nina = User.objects.get(email=NEW["email"])
    # She gets no organization of her own besides; she creates one when she wants it.
    assert [(one.organization, one.role) for one in nina.memberships.all()] == [(world.acme, Role.DEVELOPER)]
    made = signed_in(nina).post("/organization", {"name": "Nina's"})
    assert made.status_code == 200
    assert {one.organization.name for one in nina.memberships.all()} == {"Acme", "Nina's"}
    assert signed_in(world.adam).get(path).json() == {"invitations": []}
    # It is good once, also for an account that is gone meanwhile.
    User.objects.filter(pk=nina.pk).update(email="else@example.com")
    before = counts()
    assert sign_up(invitation=token_in(message.body)).status_code == 403
    assert counts() == before


def test_who_is_invited_to_sign_up_alone_gets_an_organization_of_their_own(world: World, settings: Any) -> None:
    settings.SIGN_UP = "invite"
    assert sign_up(invitation=invitation_token(invite(email=NEW["email"]))).status_code == 200
    mine = Membership.objects.get(user__email=NEW["email"])
    assert (mine.organization.name, mine.role) == ("Default Organization", Role.OWNER)
    assert [project.name for project in mine.organization.projects.all()] == ["Default Project"]


@pytest.mark.parametrize("flaw", ["another address", "too old", "withdrawn", "changed", "of another kind", "none"])
@pytest.mark.parametrize("mode", ["invite", "open"])
def test_an_invitation_that_is_not_good_lets_nobody_in(world: World, settings: Any, flaw: str, mode: str) -> None:
    settings.SIGN_UP = mode
    invitation = invite(email=NEW["email"], organization=world.acme)
    token = invitation_token(invitation)
    email = NEW["email"]
    if flaw == "another address":
        email = "other@example.com"
    elif flaw == "too old":
        Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    elif flaw == "withdrawn":
        path = f"/organization/{world.acme.id}/invitations/{invitation.id}"
        assert signed_in(world.olivia).send("DELETE", path, {}).status_code == 200
    elif flaw == "changed":
        token = token[:-1] + ("A" if token[-1] != "A" else "B")
    elif flaw == "of another kind":
        token = verification_token(world.sam)
    else:
        token = "nonsense"
    before = counts()
    response = sign_up(email=email, invitation=token)
    assert response.status_code == 403
    assert response.json()["message"].startswith("This invitation is not valid for this e-mail address")
    assert counts() == before


@pytest.mark.django_db(transaction=True)
def test_of_two_who_use_an_invitation_at_once_one_gets_in(settings: Any) -> None:
    settings.SIGN_UP = "invite"
    token = invitation_token(invite(email=NEW["email"]))
    statuses: list[int] = []

    def try_once() -> None:
        statuses.append(sign_up(invitation=token).status_code)
        connection.close()

    threads = [Thread(target=try_once) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses.count(200) == 1
    assert User.objects.count() == 1


def test_someone_with_an_account_accepts_where_they_are_signed_in(world: World) -> None:
    invitation = invite(email=world.sam.email, organization=world.acme, role=Role.ADMIN)
    path = f"/organization/{world.acme.id}/invitations/{invitation.id}/accept"
    assert signed_in(world.dana).post(path).status_code == 403
    assert signed_in(world.sam).post(path).json()["member"]["role"] == "admin"
    assert signed_in(world.sam).post(path).status_code == 404, "it is good once"


def test_an_invitation_tells_nobody_who_has_an_account(world: World) -> None:
    path = f"/organization/{world.acme.id}/invitations"
    answers = []
    for email in ("sam@example.com", "nobody@example.com"):
        answer = signed_in(world.olivia).post(path, {"email": email, "role": "developer"}).json()
        answers.append({**answer, "invitation": sorted(answer["invitation"])})
    assert answers[0] == answers[1]


def test_a_member_is_not_invited_again(world: World) -> None:
    # An inviter sees all members and their addresses: the refusal tells them nothing new.
    path = f"/organization/{world.acme.id}/invitations"
    refused = signed_in(world.olivia).post(path, {"email": "Dana@Example.com", "role": "admin"})
    message = "Dana (dana@example.com) already is a member of the organization, with the role developer"
    assert (refused.status_code, refused.json()) == (409, {"message": message})
    assert signed_in(world.dana).post(path, {"email": "olivia@example.com", "role": "developer"}).status_code == 403
    assert Invitation.objects.count() == 0
    assert account_emails.send_pending_emails() == 0


def test_an_operator_invites_by_command(db: None, settings: Any) -> None:
    settings.SIGN_UP = "invite"
    said = StringIO()
    call_command("invite", "Nina@example.com", stdout=said)
    [until, told, page] = said.getvalue().splitlines()
    assert until.startswith("nina@example.com may sign up until ")
    token = told.removeprefix("invitation: ")
    assert page == f"sign-up page: {settings.PUBLIC_URL}/app/sign-up?" + urlencode(
        {"invitation": token, "email": "nina@example.com"}
    )
    assert sign_up(invitation=token).status_code == 200
    with pytest.raises(CommandError, match="Enter a valid email address"):
        call_command("invite", "nobody")


class TestConfirmingAnAddress:
    @pytest.fixture(autouse=True)
    def _asked_for(self, settings: Any, world: World) -> None:
        settings.EMAIL_VERIFICATION = True
        User.objects.update(email_verified_at=timezone.now())

    def test_it_takes_the_token_that_was_sent_to_it(self, mailoutbox: Any) -> None:
        assert sign_up().json() == ANSWERED
        assert sign_in().status_code == 401
        assert account_emails.send_pending_emails() == 1
        (message,) = mail.outbox
        assert message.to == ["nina@example.com"]
        token = token_in(message.body)
        assert Caller().post("/auth/verify-email", {"token": token}).json() == {"message": "E-mail address confirmed"}
        session = sign_in().json()
        assert Caller(session["token"]).get("/auth/get-session").json()["user"]["emailVerified"] is True
        project = Membership.objects.get(user__email=NEW["email"]).organization.projects.get()
        body = {"description": "a key", "projectId": str(project.id)}
        assert Caller(session["token"]).post("/keys/api", body).status_code == 200
        again = Caller().post("/auth/verify-email", {"token": token})
        assert again.status_code == 400
        assert again.json()["message"].startswith("This token was used or is too old")

    def test_until_then_nobody_signs_in_and_nothing_is_made(self) -> None:
        """Else a person who signs up with another's address first could leave their passkey in the account."""
        sign_up()
        nina = User.objects.get(email=NEW["email"])
        organization = nina.memberships.get().organization
        # A session and a passkey from before addresses had to be confirmed.
        with override_settings(EMAIL_VERIFICATION=False):
            caller = signed_in(nina)
            made = add_passkey(caller)
        before = counts()
        for path, body in (
            ("/keys/api", {"description": "a key", "projectId": str(organization.projects.get().id)}),
            ("/organization", {"name": "Another"}),
            (f"/organization/{organization.id}/invitations", {"email": "x@example.com", "role": "developer"}),
            (f"/organization/{organization.id}/members", {"email": "sam@example.com", "role": "owner"}),
            ("/auth/passkeys/options", {"password": PASSWORD}),
            ("/auth/two-factor", {"password": PASSWORD}),
        ):
            assert caller.post(path, body).status_code == 401
        assert sign_in().status_code == 401
        assert Caller().post("/auth/sign-in/passkey", answer(Caller(), made)).status_code == 401
        assert (counts(), ApiKey.objects.count(), Invitation.objects.count()) == (before, 0, 0)
        assert TwoFactor.objects.filter(user=nina).exclude(sealed_secret=b"").count() == 0
        User.objects.filter(pk=nina.pk).update(email_verified_at=timezone.now())
        assert caller.get("/auth/get-session").status_code == 200

    def test_a_reset_by_mail_removes_what_was_there_and_confirms(self, mailoutbox: Any, world: World) -> None:
        sign_up(password="the password of another")
        nina = User.objects.get(email=NEW["email"])
        with override_settings(EMAIL_VERIFICATION=False):
            caller = signed_in(nina)
            made = add_passkey(caller, password="the password of another")
            project = nina.memberships.get().organization.projects.get()
            key = make_key(nina, project).key
            Program().signed_in_by(nina, project)
        browser = Client()
        browser.force_login(nina)
        nina.refresh_from_db()
        assert (
            Caller().post("/auth/reset-password", {"token": reset_token(nina), "password": PASSWORD}).status_code == 200
        )
        nina.refresh_from_db()
        assert nina.email_verified_at is not None
        assert sign_in().status_code == 200, "with the password alone"
        assert (nina.passkeys.count(), TwoFactor.objects.filter(user=nina).count()) == (0, 0)
        assert Caller().post("/auth/sign-in/passkey", answer(Caller(), made)).status_code == 401
        assert caller.get("/auth/get-session").status_code == 401
        assert "_auth_user_id" not in browser.session
        key.refresh_from_db()
        assert key.status == ApiKey.Status.DELETED
        assert Consent.objects.get().revoked_at is not None
        # A confirmed account keeps its second factor.
        add_passkey(signed_in(world.olivia))
        world.olivia.refresh_from_db()
        Caller().post("/auth/reset-password", {"token": reset_token(world.olivia), "password": "nine blue lanterns"})
        assert world.olivia.passkeys.count() == 1

    def test_who_has_an_account_is_not_told(self, world: World, mailoutbox: Any) -> None:
        """The answers, and those to signing in afterwards, are the same; the owner of the account gets a message."""
        before = User.objects.get(pk=world.olivia.pk)
        new, known = sign_up(), sign_up(email="Olivia@Example.com", password="another long password")
        assert (new.status_code, new.json()) == (known.status_code, known.json()) == (200, ANSWERED)
        refused = [sign_in(), sign_in(email="olivia@example.com", password="another long password")]
        assert {(one.status_code, one.json()["message"]) for one in refused} == {
            (
                401,
                "Wrong e-mail address or password, or the address is not confirmed yet: open the link that was "
                "sent to it",
            )
        }
        pages = [Visitor().send("/app/sign-up", {**NEW, "email": f"{name}@example.com"}) for name in ("ida", "sam")]
        assert [one.status_code for one in pages] == [200, 200]
        shown = {words(one).replace("ida@", "").replace("sam@", "") for one in pages}
        assert len(shown) == 1
        assert account_emails.send_pending_emails() == 4
        told = {message.to[0]: message for message in mail.outbox}
        assert set(told) == {"nina@example.com", "olivia@example.com", "ida@example.com", "sam@example.com"}
        assert told["olivia@example.com"].subject == "You already have an account"
        assert "tried to sign up" in str(told["olivia@example.com"].body)
        assert told["ida@example.com"].subject == "Confirm your e-mail address"
        assert account_emails.send_pending_emails() == 0
        after = User.objects.get(pk=world.olivia.pk)
        assert (after.password, after.name, after.email_verified_at) == (
            before.password,
            before.name,
            before.email_verified_at,
        )

    def test_messages_to_one_address_are_counted_whoever_has_them_sent(self, world: World) -> None:
        paths = ("request-password-reset", "send-verification-email", "request-password-reset")
        answers = [sign_up(email="sam@example.com") for _ in range(3)]
        answers += [Caller().post(f"/auth/{path}", {"email": "sam@example.com"}) for path in paths]
        assert [one.status_code for one in answers] == [200] * 5 + [429]

    def test_an_unconfirmed_address_is_nobodys_for_others(self, world: World) -> None:
        """Else a person who signs up with a colleague's address first would get the colleague's access."""
        sign_up()
        response = signed_in(world.olivia).post(
            f"/organization/{world.acme.id}/members", {"email": NEW["email"], "role": "admin"}
        )
        assert response.status_code == 404
        assert not Membership.objects.filter(organization=world.acme, user__email=NEW["email"]).exists()
        invitation = invite(email=NEW["email"], organization=world.acme)
        nina = User.objects.get(email=NEW["email"])
        with pytest.raises(Forbidden, match="Confirm your e-mail address first"):
            accept_invitation(user=nina, organization_id=str(world.acme.id), identifier=str(invitation.id))
        assert not Membership.objects.filter(organization=world.acme, user=nina).exists()

    @pytest.mark.parametrize("flaw", ["nonsense", "too old", "another address", "of another kind"])
    def test_a_token_that_is_not_good_confirms_nothing(self, flaw: str, monkeypatch: pytest.MonkeyPatch) -> None:
        sign_up()
        nina = User.objects.get(email=NEW["email"])
        token = verification_token(nina)
        if flaw == "nonsense":
            token = "nonsense"
        elif flaw == "too old":
            monkeypatch.setattr("apps.organizations.credentials.email_tokens.VERIFICATION_LASTS", timedelta(seconds=-1))
        elif flaw == "another address":
            User.objects.filter(pk=nina.pk).update(email="moved@example.com")
        else:
            token = invitation_token(invite(email=NEW["email"]))
        assert Caller().post("/auth/verify-email", {"token": token}).status_code == 400
        assert User.objects.get(pk=nina.pk).email_verified_at is None

    def test_another_message_is_sent_when_asked_for_but_not_without_end(self, mailoutbox: Any) -> None:
        sign_up()
        account_emails.send_pending_emails()
        again = [Caller().post("/auth/send-verification-email", {"email": NEW["email"]}) for _ in range(5)]
        assert [one.status_code for one in again] == [200] * 4 + [429]
        assert account_emails.send_pending_emails() == 1, "one message for all that was asked since"
        other = [
            Caller().post("/auth/send-verification-email", {"email": email})
            for email in ("olivia@example.com", "no@example.com")
        ]
        assert {str(one.json()) for one in [*other, again[0]]} == {
            "{'message': 'If this address is not confirmed yet, we have sent it a link'}"
        }
        assert account_emails.send_pending_emails() == 0

    def test_tokens_are_not_tried_without_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            attempt_rate_limiter, "VERIFY_PER_ADDRESS", attempt_rate_limiter.AttemptLimit("verify-email:address", 2)
        )
        statuses = [Caller().post("/auth/verify-email", {"token": "x"}).status_code for _ in range(3)]
        assert statuses == [400, 400, 429]

    def test_operators_are_known_by_whoever_makes_them(self) -> None:
        assert create_operator(email="op@example.com", password=PASSWORD).email_verified_at is not None


def test_a_message_that_cannot_be_sent_waits(db: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.EMAIL_VERIFICATION = True
    sign_up()

    def away(*_: Any, **__: Any) -> int:
        raise ConnectionRefusedError

    with monkeypatch.context() as patched:
        patched.setattr("django.core.mail.EmailMessage.send", away)
        assert account_emails.send_pending_emails() == 0
    assert account_emails.send_pending_emails() == 1


def test_production_writes_no_token_to_the_log(db: None, settings: Any, capsys: pytest.CaptureFixture[str]) -> None:
    settings.EMAIL_VERIFICATION, settings.DEVELOPMENT = True, False
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    sign_up()
    assert account_emails.send_pending_emails() == 0
    assert "token" not in "".join(capsys.readouterr())
    assert User.objects.exclude(verification_wanted_at=None).count() == 1
