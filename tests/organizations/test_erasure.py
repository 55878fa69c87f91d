"""The remains of a deleted organization, and that nothing else goes with it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.apps import apps
from django.db import connection
from django.utils import timezone

from apps.alerts.models import Alert, AlertDelivery, AlertDestination, AlertReader, AlertRule
from apps.billing import ledger
from apps.billing.models import Discount, PaymentMethod, Transaction
from apps.guardrails.models import CustomRule, GuardrailConfig, Violation
from apps.kernel.ids import new_id
from apps.keys.models import IamRule, ProviderKey
from apps.keys.secrets import encrypt_credential
from apps.logs import hooks as log_erasure
from apps.logs.models import ActivityDay
from apps.organizations.actions import delete_organization
from apps.organizations.models import Organization, Project, User
from apps.organizations.tasks import erase
from tests.logs.entries import entry, write
from tests.support.cast import World, make_key

# Data that stays: the row that says "deleted", the rows that requests are refused by, and the books.
KEPT = {
    "organizations_organization",
    "organizations_project",
    "keys_apikey",
    "billing_ledgerentry",
    "billing_transaction",
}
SECRET = "the words of "


def fill(organization: Organization, project: Project, user: User) -> None:
    """Leave rows of the organization in every table that has any."""
    words, mine = f"{SECRET}{organization.id}", {"organization": organization}
    Organization.objects.filter(pk=organization.pk).update(name=words, billing_address=words, billing_notes=words)
    Project.objects.filter(pk=project.pk).update(name=words)
    key = make_key(user, project, words).key
    IamRule.objects.create(api_key=key, rule_type="deny_models", rule_value={"models": [words]})
    ProviderKey.objects.create(
        **mine, provider="custom", provider_name=str(organization.id), encrypted_token=encrypt_credential(words)
    )
    rule = AlertRule.objects.create(**mine, kind="error_rate", parameters={"name": words})
    destination = AlertDestination.objects.create(
        **mine, name=words, kind="webhook", url="https://example.com/", encrypted_credentials=encrypt_credential(words)
    )
    alert = Alert.objects.create(**mine, rule=rule, kind=rule.kind, title=words, text=words, fired_at=timezone.now())
    AlertDelivery.objects.create(alert=alert, destination=destination, phase="fired")
    AlertReader.objects.create(membership=organization.memberships.get(user=user))
    PaymentMethod.objects.create(**mine, processor_customer_id=words, processor_payment_method_id=words)
    Discount.objects.create(**mine, share=Decimal("0.1"), model=words)
    GuardrailConfig.objects.create(**mine)
    CustomRule.objects.create(**mine, name=words, type="blocked_terms", config={"terms": [words]})
    Violation.objects.create(
        organization_id=organization.id,
        log_id=new_id(),
        rule_id="x",
        rule_name=words,
        category="x",
        action_taken="warned",
    )
    write(entry(key, content=words), entry(key, content=words), entry(key, content=words))
    ActivityDay.objects.create(
        date=datetime.now(UTC).date(),
        organization_id=organization.id,
        project_id=project.id,
        api_key_id=key.id,
        model=words,
        provider="sandbox",
    )
    ledger.grant(organization.id, Decimal(5), "a gift")


def rows_of(organization_id: UUID) -> dict[str, list[Any]]:
    """Return the rows of every table that mention the organization, as the database has them."""
    found = {}
    with connection.cursor() as cursor:
        for model in apps.get_models():
            table = model._meta.db_table
            columns = {field.column for field in model._meta.concrete_fields}
            if "organization_id" in columns or table == "organizations_organization":
                column = "organization_id" if "organization_id" in columns else "id"
                where = f"{column} = %s"
            elif table == "keys_apikey":
                where = "project_id IN (SELECT id FROM organizations_project WHERE organization_id = %s)"
            elif table == "keys_iamrule":
                where = (
                    "api_key_id IN (SELECT k.id FROM keys_apikey k JOIN organizations_project p ON p.id = k.project_id "
                    "WHERE p.organization_id = %s)"
                )
            else:
                continue
            cursor.execute(f"SELECT row_to_json(t)::text FROM {table} t WHERE {where} ORDER BY 1", [organization_id])
            if rows := [json.loads(text) for (text,) in cursor.fetchall()]:
                found[table] = rows
    return found


def test_only_what_says_nothing_and_the_books_are_left(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(log_erasure, "BATCH", 2)
    fill(world.acme, world.project, world.dana)
    fill(world.elsewhere, world.elsewhere_project, world.sam)
    others = rows_of(world.elsewhere.id)
    assert set(rows_of(world.acme.id)) == set(others)
    assert len(others) >= 14
    delete_organization(organization=world.acme)
    erase()
    left = rows_of(world.acme.id)
    assert set(left) == KEPT
    assert SECRET not in json.dumps(left)
    assert rows_of(world.elsewhere.id) == others
    assert Transaction.objects.get(organization=world.acme).credit_amount == 5


def test_again_changes_nothing(world: World) -> None:
    fill(world.acme, world.project, world.dana)
    delete_organization(organization=world.acme)
    erase()
    left = rows_of(world.acme.id)
    erase()
    assert rows_of(world.acme.id) == left


def test_a_run_that_was_cut_short_is_carried_on(world: World, monkeypatch: Any) -> None:
    fill(world.acme, world.project, world.dana)
    delete_organization(organization=world.acme)
    with monkeypatch.context() as broken:
        broken.setattr(log_erasure.ActivityDay, "objects", None)
        with pytest.raises(AttributeError):
            erase()
    assert Organization.objects.get(pk=world.acme.pk).name != ""
    erase()
    assert set(rows_of(world.acme.id)) == KEPT


def test_what_is_not_deleted_is_not_erased(world: World) -> None:
    fill(world.acme, world.project, world.dana)
    before = rows_of(world.acme.id)
    erase()
    assert rows_of(world.acme.id) == before
