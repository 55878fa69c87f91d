"""Members and invitations by page: by role, as the API has it."""

from __future__ import annotations

import pytest
from django.conf import LazySettings

from apps.keys.models import ApiKey
from apps.organizations.models import Invitation, Membership, Role
from tests.support.cast import World, make_key
from tests.support.console_client import Visitor, page, words


def membership(world: World, name: str) -> Membership:
    return Membership.objects.get(organization=world.acme, user=getattr(world, name))


def test_an_admin_invites_once_and_withdraws(world: World) -> None:
    visitor, path = Visitor(world.adam), page(world.acme, "members")
    fields = {"action": "invite", "email": "New@Example.com", "role": "developer"}
    for _ in range(2):
        assert visitor.send(path, fields, once="one form").status_code == 302
    invitation = Invitation.objects.get()
    assert (invitation.email, invitation.role, invitation.invited_by) == ("new@example.com", "developer", world.adam)
    assert "new@example.com" in words(visitor.open(path))
    assert visitor.send(path, {"action": "withdraw", "id": str(invitation.id)}).status_code == 302
    assert Invitation.objects.count() == 0


def test_nobody_invites_above_their_own_role(world: World) -> None:
    path = page(world.acme, "members")
    fields = {"action": "invite", "email": "new@example.com", "role": "owner"}
    refused = Visitor(world.adam).send(path, fields)
    assert "needs the role owner" in refused.context["form"].problem
    for user in (world.dana, world.sam):
        assert Visitor(user).send(path, {**fields, "role": "developer"}).status_code in {400, 403}
    assert Invitation.objects.count() == 0


def test_roles_are_changed_up_to_ones_own_and_the_last_owner_stays(world: World) -> None:
    path = page(world.acme, "members")
    dana, olivia = membership(world, "dana"), membership(world, "olivia")
    assert Visitor(world.adam).send(path, {"action": "change", "id": str(dana.id), "role": "admin"}).status_code == 302
    dana.refresh_from_db()
    assert dana.role == Role.ADMIN
    assert Visitor(world.adam).send(path, {"action": "change", "id": str(dana.id), "role": "owner"}).status_code == 400
    assert Visitor(world.adam).send(path, {"action": "remove", "id": str(olivia.id)}).status_code == 400
    last = Visitor(world.olivia).send(path, {"action": "remove", "id": str(olivia.id)})
    assert "last owner" in last.context["form"].problem
    dana.refresh_from_db()
    assert (dana.role, membership(world, "olivia").role) == (Role.ADMIN, Role.OWNER)


def test_removing_a_member_revokes_their_keys_and_leaving_leads_home(world: World) -> None:
    key = make_key(world.dana, world.project).key
    path = page(world.acme, "members")
    own = membership(world, "adam")
    Visitor(world.olivia).send(path, {"action": "remove", "id": str(membership(world, "dana").id)})
    assert ApiKey.objects.get(pk=key.pk).status == "deleted"
    assert Visitor(world.adam).send(path, {"action": "remove", "id": str(own.id)})["Location"] == "/app/"
    assert list(world.acme.memberships.values_list("user", flat=True)) == [world.olivia.id]


def test_a_stranger_sees_and_does_nothing(world: World) -> None:
    path = page(world.acme, "members")
    assert Visitor(world.sam).open(path).status_code == 403
    for action in ("change", "remove", "invite", "withdraw"):
        fields = {"action": action, "id": str(membership(world, "dana").id), "role": "admin", "email": "a@b.example"}
        assert Visitor(world.sam).send(path, fields).status_code == 403
        # Beneath their own organization, a member of another is not found.
        assert Visitor(world.sam).send(page(world.elsewhere, "members"), {**fields, "email": ""}).status_code == 400
    assert membership(world, "dana").role == Role.DEVELOPER
    assert Invitation.objects.count() == 0


@pytest.mark.parametrize(
    ("backend", "development", "told", "done"),
    [
        ("smtp", True, "", "An invitation is on its way to new@example.com."),
        (
            "console",
            True,
            "writes its e-mails, including invitations, to the worker's log",
            "new@example.com is invited.",
        ),
        ("console", False, "sends no e-mail until its operator sets EMAIL_URL", "new@example.com is invited."),
    ],
)
def test_who_invites_is_told_what_becomes_of_the_message(
    world: World, settings: LazySettings, backend: str, development: bool, told: str, done: str
) -> None:
    settings.EMAIL_BACKEND = f"django.core.mail.backends.{backend}.EmailBackend"
    settings.DEVELOPMENT = development
    visitor, path = Visitor(world.adam), page(world.acme, "members")
    shown = words(visitor.open(path))
    assert told in shown
    assert ("EMAIL_URL" in shown) == bool(told)
    visitor.send(path, {"action": "invite", "email": "new@example.com", "role": "developer"})
    assert done in words(visitor.open(path))
