"""Home, new organizations, settings and the end of one."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from knox.models import AuthToken

from apps.organizations.models import Membership, Organization, OrganizationDeletion, RetentionLevel, Role
from tests.support.authenticator import app_code, enrol
from tests.support.cast import PASSWORD, World, make_organization, make_user
from tests.support.console_client import Visitor, page, words
from tests.support.deletions import end_waiting_period


def test_home_leads_to_where_the_visitor_belongs(world: World) -> None:
    assert Visitor().open("/app/")["Location"] == "/app/sign-in"
    assert Visitor(world.olivia).open("/app/")["Location"] == page(world.acme)
    nobody = Visitor(make_user("Nina"))
    assert nobody.open("/app/")["Location"] == "/app/organizations/new"
    second = make_organization(owner=world.olivia, name="Bravo")
    visitor = Visitor(world.olivia)
    assert visitor.open("/app/")["Location"] == "/app/organizations"
    visitor.open(page(second))
    cookie = visitor.client.cookies["gateway-organization"]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Lax", "/app/")
    assert visitor.open("/app/")["Location"] == page(second)
    # A cookie is no key.
    visitor.client.cookies["gateway-organization"] = str(world.elsewhere.id)
    assert visitor.open("/app/")["Location"] == "/app/organizations"


def test_a_form_sent_twice_makes_one_organization(world: World) -> None:
    visitor = Visitor(world.sam)
    first, second = (visitor.send("/app/organizations/new", {"name": "Twice"}, once="the same form") for _ in range(2))
    made = Organization.objects.get(name="Twice")
    assert first["Location"] == second["Location"] == page(made)
    assert Membership.objects.get(organization=made).role == Role.OWNER


def test_names_of_tenants_are_words_and_never_markup(world: World) -> None:
    Organization.objects.filter(pk=world.acme.pk).update(name='<script>alert("x")</script>')
    for path in (page(world.acme), page(world.acme, "settings"), page(world.acme, "members"), "/app/organizations"):
        text = Visitor(world.olivia).open(path).content.decode()
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;" in text


def test_an_owner_changes_retention_and_billing_details_and_an_admin_the_name_alone(world: World) -> None:
    path = page(world.acme, "settings")
    owner, admin = Visitor(world.olivia), Visitor(world.adam)
    assert owner.send(path, {"retentionLevel": "retain"}).status_code == 302
    assert owner.send(path, {"billingCompany": "Acme Ltd", "billingEmail": ""}).status_code == 302
    assert admin.send(path, {"name": "Acme Two"}).status_code == 302
    refused = admin.send(path, {"retentionLevel": "none"})
    assert refused.status_code == 400
    assert "owner" in refused.context["form"].problem
    world.acme.refresh_from_db()
    assert (world.acme.retention_level, world.acme.billing_company, world.acme.billing_email, world.acme.name) == (
        RetentionLevel.RETAIN,
        "Acme Ltd",
        None,
        "Acme Two",
    )
    assert "Log retention" not in words(admin.open(path))


@pytest.mark.parametrize("path", ["settings", "settings/delete"])
def test_settings_are_not_for_developers_and_strangers(world: World, path: str) -> None:
    for user in (world.dana, world.sam):
        assert Visitor(user).open(page(world.acme, path)).status_code == 403
        assert Visitor(user).send(page(world.acme, path), {"name": "Acme"}).status_code == 403
    world.acme.refresh_from_db()
    assert (world.acme.status, world.acme.name) == ("active", "Acme")


def test_deleting_takes_the_typed_name(world: World) -> None:
    owner, path = Visitor(world.olivia), page(world.acme, "settings/delete")
    wrong = owner.send(path, {"name": "acme inc"})
    assert wrong.context["form"].errors["name"] == "The name does not match; nothing was deleted"
    world.acme.refresh_from_db()
    assert world.acme.status == "active"
    assert owner.send(path, {"name": "Acme", "reason": "moved"})["Location"] == path
    world.acme.refresh_from_db()
    assert (world.acme.status, world.acme.auto_top_up_enabled) == ("deleting", False)
    assert OrganizationDeletion.objects.get().reason == "moved"
    assert "Cancel the deletion" in words(owner.open(path))
    assert "An owner can cancel the deletion" in words(Visitor(world.dana).open(page(world.acme)))
    assert Visitor(world.adam).send(f"{path}/cancel").status_code == 403
    assert owner.send(f"{path}/cancel")["Location"] == page(world.acme, "settings")
    world.acme.refresh_from_db()
    assert (world.acme.status, world.acme.deletion_due_at) == ("active", None)
    assert owner.send(path, {"name": "Acme"})["Location"] == path
    assert end_waiting_period() == [world.acme.id]
    assert owner.open(page(world.acme)).status_code == 404


def test_deleting_in_an_old_session_takes_the_password_and_the_second_factor_too(world: World) -> None:
    owner, path = Visitor(world.olivia), page(world.acme, "settings/delete")
    enrol(world.olivia)
    assert "Current password" not in words(owner.open(path))
    AuthToken.objects.update(created=timezone.now() - timedelta(minutes=11))
    assert "Current password" in words(owner.open(path))
    wrong: dict[str, str]
    for wrong in ({}, {"password": "not hers"}, {"password": PASSWORD}, {"password": PASSWORD, "code": "000000"}):
        assert owner.send(path, {"name": "Acme", **wrong}).status_code == 400
    world.acme.refresh_from_db()
    assert world.acme.status == "active"
    fields = {"name": "Acme", "password": PASSWORD, "code": app_code()}
    assert owner.send(path, fields)["Location"] == path
    world.acme.refresh_from_db()
    assert world.acme.status == "deleting"
