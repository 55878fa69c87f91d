"""Operators' actions are on record with the values before and after; secrets are not."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from apps.catalog.models import Model, ModelProvider, Provider
from apps.organizations.deletion import erase_deleted
from apps.organizations.models import AuditEntry, Organization, User
from tests.admin.test_customers import filled, operator, page
from tests.support.cast import World

__all__ = ["operator"]

LIST = "admin_logentry_changelist"
NEW_PASSWORD = "a different password 91"


@pytest.fixture
def provider(db: None) -> Provider:
    """A provider that an operator has made."""
    return Provider.objects.create(
        id="acme-ai",
        name="Acme AI",
        dialect="openai",
        auth="bearer",
        base_url="https://acme.example",
        api_key_env="ACME_API_KEY",
    )


def test_a_change_of_the_catalog_has_its_values(operator: Client, provider: Provider) -> None:
    path = page("catalog_provider_change", provider.pk)
    assert (
        operator.post(
            path, filled(operator, path, priority="0.8", name="Acme", facts='{"reasoning": true}')
        ).status_code
        == 302
    )
    entry = LogEntry.objects.get()
    assert entry.get_change_message() == "Name: Acme AI → Acme; Facts: {} → {'reasoning': True}; Priority: 1 → 0.8"
    shown = operator.get(page(LIST)).content.decode()
    assert "op@example.com" in shown
    assert "Priority: 1 → 0.8" in shown
    assert operator.get(page("admin_logentry_add")).status_code == 403
    assert operator.post(page("admin_logentry_delete", entry.pk), {"post": "yes"}).status_code == 403
    assert LogEntry.objects.count() == 1


def test_an_offer_is_found_as_the_list_shows_it(operator: Client, provider: Provider) -> None:
    for name in ("acme-1", "acme-2"):
        model = Model.objects.create(id=name, name=name, family="acme", mode="chat")
        ModelProvider.objects.create(provider=provider, model=model, model_name=name)
    for words, count in (("acme-ai/acme-1", 1), ("acme-ai/acme", 0), ("acme-ai", 2), ("acme-2", 1)):
        shown = operator.get(page("catalog_modelprovider_changelist"), {"q": words}).context["cl"].result_list
        assert len(shown) == count, words


def test_a_new_password_is_not_written_down(operator: Client, world: World) -> None:
    path = reverse("admin:auth_user_password_change", args=[world.dana.pk])
    fields = {"password1": NEW_PASSWORD, "password2": NEW_PASSWORD, "usable_password": "true"}
    assert operator.post(path, fields).status_code == 302
    assert User.objects.get(pk=world.dana.pk).check_password(NEW_PASSWORD)
    [entry] = LogEntry.objects.all()
    assert entry.get_change_message() == "Password: changed"
    assert world.dana.email in entry.object_repr


def test_they_outlive_the_organization(operator: Client, world: World) -> None:
    path = page("organizations_organization_change", world.acme.pk)
    assert operator.post(path, filled(operator, path, name="Acme Inc")).status_code == 302
    Organization.objects.filter(pk=world.acme.pk).update(status="deleted")
    erase_deleted()
    assert not AuditEntry.objects.filter(organization_id=world.acme.pk).exists()
    entry = LogEntry.objects.get(object_id=str(world.acme.pk))
    assert entry.get_change_message() == "Name: Acme → Acme Inc"
    assert str(entry.object_id) in operator.get(page(LIST), {"q": str(world.acme.pk)}).content.decode()
