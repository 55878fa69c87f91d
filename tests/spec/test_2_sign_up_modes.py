"""Who may make an account: everybody, whom somebody invited, or nobody; and what an address is good for unconfirmed."""

from __future__ import annotations

import re
from datetime import timedelta
from io import StringIO
from threading import Thread
from typing import Any

import pytest
from django.core import mail
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from apps.keys.models import ApiKey
from apps.organizations import account_emails, attempt_rate_limiter
from apps.organizations.actions import create_operator
from apps.organizations.email_tokens import invitation_token, verification_token
from apps.organizations.invitations import invite
from apps.organizations.models import Invitation, Membership, Organization, Role, User
from tests.support.cast import PASSWORD, Caller, World, signed_in

NEW = {"name": "Nina", "email": "nina@example.com", "password": PASSWORD}


def sign_up(**changes: Any) -> Any:
    return Caller().post("/auth/sign-up/email", {**NEW, **changes})


def counts() -> tuple[int, int, int]:
    return User.objects.count(), Organization.objects.count(), Membership.objects.count()


def token_in(text: str) -> str:
    found = re.search(r'"(?:token|invitation)": "([^"]+)"', text)
    assert found is not None
    return found[1]


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
            "invite": "Sign-up is by invitation: send the `invitation` of the message that you got",
            "closed": "Sign-up is closed: accounts are made by the operator",
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
    # There is no organization of her own beside it that nobody asked for; she makes one when she wants it.
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
    assert response.json()["message"].startswith("This invitation is not good for this e-mail address")
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
    # Whoever invites sees all members and their addresses: the refusal tells them nothing new.
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
    token = said.getvalue().split("invitation: ")[1].strip()
    assert sign_up(invitation=token).status_code == 200
    with pytest.raises(CommandError, match="Enter a valid email address"):
        call_command("invite", "nobody")


class TestConfirmingAnAddress:
    @pytest.fixture(autouse=True)
    def _asked_for(self, settings: Any, world: World) -> None:
        settings.EMAIL_VERIFICATION = True
        User.objects.update(email_verified_at=timezone.now())

    def test_it_takes_the_token_that_was_sent_to_it(self, mailoutbox: Any) -> None:
        session = sign_up().json()
        shown = Caller(session["token"]).get("/auth/get-session").json()["user"]
        assert shown == {**session["user"], "emailVerified": False}
        assert account_emails.send_pending_emails() == 1
        (message,) = mail.outbox
        assert message.to == ["nina@example.com"]
        token = token_in(message.body)
        assert Caller().post("/auth/verify-email", {"token": token}).json() == {"message": "E-mail address confirmed"}
        assert Caller(session["token"]).get("/auth/get-session").json()["user"]["emailVerified"] is True
        again = Caller().post("/auth/verify-email", {"token": token})
        assert again.status_code == 400
        assert again.json()["message"].startswith("This token was used or is too old")

    def test_until_then_no_key_no_organization_and_no_invitation_is_made(self) -> None:
        caller = Caller(sign_up().json()["token"])
        nina = User.objects.get(email=NEW["email"])
        organization = nina.memberships.get().organization
        project = organization.projects.get()
        before = counts()
        for path, body in (
            ("/keys/api", {"description": "a key", "projectId": str(project.id)}),
            ("/organization", {"name": "Another"}),
            (f"/organization/{organization.id}/invitations", {"email": "x@example.com", "role": "developer"}),
        ):
            response = caller.post(path, body)
            assert response.status_code == 403
            assert response.json()["message"].startswith("Confirm your e-mail address first")
        assert (counts(), ApiKey.objects.count(), Invitation.objects.count()) == (before, 0, 0)
        User.objects.filter(pk=nina.pk).update(email_verified_at=timezone.now())
        assert caller.post("/keys/api", {"description": "a", "projectId": str(project.id)}).status_code == 200

    def test_an_unconfirmed_address_is_nobodys_for_others(self, world: World) -> None:
        """Else whoever signs up with a colleague's address first would be let in in their place."""
        sign_up()
        response = signed_in(world.olivia).post(
            f"/organization/{world.acme.id}/members", {"email": NEW["email"], "role": "admin"}
        )
        assert response.status_code == 404
        assert not Membership.objects.filter(organization=world.acme, user__email=NEW["email"]).exists()
        invitation = invite(email=NEW["email"], organization=world.acme)
        path = f"/organization/{world.acme.id}/invitations/{invitation.id}/accept"
        nina = User.objects.get(email=NEW["email"])
        assert signed_in(nina).post(path).status_code == 403
        assert not Membership.objects.filter(organization=world.acme, user=nina).exists()

    @pytest.mark.parametrize("flaw", ["nonsense", "too old", "another address", "of another kind"])
    def test_a_token_that_is_not_good_confirms_nothing(self, flaw: str, monkeypatch: pytest.MonkeyPatch) -> None:
        sign_up()
        nina = User.objects.get(email=NEW["email"])
        token = verification_token(nina)
        if flaw == "nonsense":
            token = "nonsense"
        elif flaw == "too old":
            monkeypatch.setattr("apps.organizations.email_tokens.VERIFICATION_LASTS", timedelta(seconds=-1))
        elif flaw == "another address":
            User.objects.filter(pk=nina.pk).update(email="moved@example.com")
        else:
            token = invitation_token(invite(email=NEW["email"]))
        assert Caller().post("/auth/verify-email", {"token": token}).status_code == 400
        assert User.objects.get(pk=nina.pk).email_verified_at is None

    def test_another_message_is_sent_when_asked_for_but_not_without_end(self, mailoutbox: Any) -> None:
        caller = Caller(sign_up().json()["token"])
        account_emails.send_pending_emails()
        statuses = [caller.post("/auth/send-verification-email").status_code for _ in range(6)]
        assert statuses == [200] * 5 + [429]
        assert account_emails.send_pending_emails() == 1, "one message for all that was asked since"

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
