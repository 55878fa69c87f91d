"""Invitations to operators: by mail, into a group, once, for a limited time; and the second factor of operators."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group
from django.core import mail
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.kernel.errors import Forbidden, InvalidRequest
from apps.organizations import actions, invitations
from apps.organizations.accounts.account_emails import send_pending_emails
from apps.organizations.credentials.email_tokens import invitation_token
from apps.organizations.models import Invitation, OperatorGroup, Organization, User
from gateway_project.admin_site.operator_groups import seed_groups
from tests.support.authenticator import enrol
from tests.support.cast import PASSWORD, World, make_user
from tests.support.console_client import Visitor, words

NEW = {"name": "Finn", "email": "finn@example.com", "password": "nine blue lanterns"}


@pytest.fixture
def boss(db: None) -> User:
    """A superuser; the groups are there."""
    seed_groups()
    return actions.create_operator(email="boss@example.com", password=PASSWORD)


def signed_in(user: User) -> Client:
    """Return a browser in which the user has signed in to the admin."""
    client = Client()
    client.force_login(user)
    return client


def press(client: Client, **answers: str) -> Any:
    """Press Invite operator and answer what it asks."""
    path = reverse("admin:organizations_user_invite_operator")
    page = client.get(path)
    if page.status_code != 200:
        return page
    return client.post(path, {"once": page.context["form"].initial["once"], **answers})


def test_a_person_without_an_account_signs_up_and_joins_the_group_once(
    boss: User, settings: Any, mailoutbox: Any
) -> None:
    settings.SIGN_UP, settings.EMAIL_VERIFICATION = "closed", True
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    assert press(signed_in(boss), email="Finn@Example.com", group="finance").status_code == 302
    assert send_pending_emails() == 1
    (message,) = mail.outbox
    assert message.to == ["finn@example.com"]
    assert "in the group “finance”" in message.body
    token = invitation_token(Invitation.objects.get())
    page = Visitor().open(f"/app/sign-up?invitation={token}&email=finn@example.com")
    assert "You are invited to operate this gateway" in words(page)
    answer = Visitor().send("/app/sign-up", {**NEW, "invitation": token})
    assert answer["Location"] == "/admin/"
    finn = User.objects.get(email=NEW["email"])
    assert (finn.is_staff, finn.is_superuser, [one.name for one in finn.groups.all()]) == (True, False, ["finance"])
    assert finn.email_verified_at is not None
    assert not Organization.objects.filter(memberships__user=finn).exists()
    assert finn.has_perm("billing.add_transaction")
    assert not finn.has_perm("organizations.add_user")
    entry = LogEntry.objects.get(object_id=str(finn.pk))
    assert (entry.user_id, entry.change_message) == (
        boss.pk,
        "Accepted the invitation into the group of operators finance",
    )
    with pytest.raises(Forbidden):
        actions.sign_up(**{**NEW, "email": "another@example.com"}, invitation=token)
    with pytest.raises(Forbidden):
        actions.sign_up(**NEW, invitation=token)


def test_a_person_with_an_account_accepts_it_signed_in(boss: User, world: World) -> None:
    invitation = invitations.invite_operator(email=world.dana.email, group=OperatorGroup.SUPPORT, by=boss)
    path = f"/app/invitations/operators/{invitation.id}"
    for other in (world.sam, world.olivia):
        assert Visitor(other).open(path).status_code == 404
        assert "Invitation not found" in words(Visitor(other).send(path))
    assert not User.objects.filter(is_staff=True).exclude(pk=boss.pk).exists()
    dana = Visitor(world.dana)
    assert "to the operators of this gateway, in the group support" in words(dana.open(path))
    world.dana.refresh_from_db()
    assert not world.dana.is_staff
    assert dana.send(path)["Location"] == "/admin/"
    world.dana.refresh_from_db()
    assert (world.dana.is_staff, world.dana.is_superuser) == (True, False)
    assert [one.name for one in world.dana.groups.all()] == ["support"]
    assert "Invitation not found" in words(dana.send(path))
    assert signed_in(world.dana).get("/admin/").status_code == 200


@pytest.mark.parametrize("how", ["expired", "withdrawn", "demoted", "deactivated"])
def test_it_ends_with_its_time_and_with_the_rights_of_its_giver(boss: User, world: World, how: str) -> None:
    invitation = invitations.invite_operator(email=world.dana.email, group=OperatorGroup.ADMIN, by=boss)
    path = f"/app/invitations/operators/{invitation.id}"
    if how == "expired":
        Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    elif how == "withdrawn":
        invitation.delete()
    elif how == "demoted":
        User.objects.filter(pk=boss.pk).update(is_superuser=False)
    else:
        User.objects.filter(pk=boss.pk).update(is_active=False)
    assert Visitor(world.dana).open(path).status_code == 404
    assert "Invitation not found" in words(Visitor(world.dana).send(path))
    world.dana.refresh_from_db()
    assert (world.dana.is_staff, world.dana.groups.count()) == (False, 0)


def test_only_superusers_invite_and_an_operator_is_not_invited_again(boss: User, world: World) -> None:
    admin = make_user("Ann")
    admin.is_staff = True
    admin.save()
    admin.groups.add(Group.objects.get(name="admin"))
    assert press(signed_in(admin), email="x@example.com", group="admin").status_code == 403
    assert not Invitation.objects.exists()
    answer = press(signed_in(boss), email=boss.email, group="support")
    assert answer.context["form"].errors == {"email": [f"{boss.email} already is an operator"]}
    assert "group" in press(signed_in(boss), email="x@example.com", group="superuser").context["form"].errors
    assert not Invitation.objects.exists()


def test_a_later_invitation_replaces_the_earlier_one_and_there_is_a_limit(
    boss: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invitations, "MAX_WAITING", 1)
    for group in (OperatorGroup.SUPPORT, OperatorGroup.FINANCE):
        invitations.invite_operator(email="finn@example.com", group=group, by=boss)
    assert Invitation.objects.get().operator_group == "finance"
    with pytest.raises(InvalidRequest) as refused:
        invitations.invite_operator(email="fay@example.com", group=OperatorGroup.SUPPORT, by=boss)
    assert refused.value.code == "invitation_limit"
    assert Invitation.objects.count() == 1


def test_the_command_invites_too(boss: User, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("invite", "finn@example.com", "--operator", "support")
    assert "/app/sign-up?invitation=" in capsys.readouterr().out
    assert Invitation.objects.get().operator_group == "support"
    with pytest.raises(CommandError):
        call_command("invite", "fay@example.com", "--operator", "support", "--organization", str(world.acme.id))
    assert Invitation.objects.count() == 1


class TestTheSecondFactor:
    def test_without_one_an_operator_reaches_only_the_page_that_adds_it(self, boss: User, settings: Any) -> None:
        settings.OPERATOR_SECOND_FACTOR = True
        client, mine = signed_in(boss), reverse("admin:organizations_twofactor_mine")
        for path in ("/admin/", "/admin/find/?s=ada", "/admin/search/?s=ada", "/admin/organizations/user/"):
            assert client.get(path)["Location"] == mine
        assert client.post("/admin/organizations/user/add/", {"email": "x@example.com"})["Location"] == mine
        assert "operators need a second factor" in client.get(mine).content.decode()
        enrol(boss)
        assert client.get("/admin/").status_code == 200

    def test_where_it_is_not_demanded_none_is_needed(self, boss: User, settings: Any) -> None:
        settings.OPERATOR_SECOND_FACTOR = False
        assert signed_in(boss).get("/admin/").status_code == 200
