"""Customers in the admin: an organization with all that is its own, and forms that keep the API's rules."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from apps.billing import gifts
from apps.kernel.ids import new_id
from apps.kernel.pages.number_formats import mark_numbers
from apps.keys.models import ApiKey, IamRule
from apps.logs.models import RefusedHour
from apps.organizations.actions import create_operator
from apps.organizations.models import AuditEntry, Membership, Organization, Role
from tests.support.cast import PASSWORD, World, make_key


@pytest.fixture
def operator(db: None) -> Client:
    """A browser in which an operator has signed in."""
    client = Client()
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    return client


def page(name: str, *arguments: Any) -> str:
    """Return the address of a page."""
    return reverse(f"admin:{name}", args=arguments)


def filled(operator: Client, path: str, **fields: str) -> dict[str, str]:
    """Return a form as it is shown, with `fields` over it."""
    form = operator.get(path).context["adminform"].form
    shown = {name: form[name].value() for name in form.fields}
    given = {name: "on" if value is True else str(value) for name, value in shown.items() if value not in (None, False)}
    return given | fields


class TestTheOrganizationsPage:
    def test_has_a_header_and_a_tab_for_what_is_its_own(self, operator: Client, world: World) -> None:
        key = make_key(world.olivia, world.project, "<b>checkout").key
        make_key(world.sam, world.elsewhere_project, "not theirs")
        gifts.give(organization=world.acme, amount=Decimal("12.50"), description="Welcome")
        shown = operator.get(page("organizations_organization_change", world.acme.pk))
        assert dict(shown.context["facts"][1:4]) == {
            "Plan": "Free",
            "Balance (USD)": mark_numbers("12.50"),
            "Status": "Active",
        }
        assert "olivia@example.com" in shown.context["facts"][0][1]
        titles = [tab["title"] for tab in shown.context["tabs"]]
        assert titles[:3] == ["Settings", "Members", "Projects"]
        own = {"API keys", "Provider keys", "MCP servers", "Log sinks", "Transactions", "Request log", "Audit"} | {
            "Alerts",
            "Alert destinations",
            "Limits",
            "Refused requests",
        }
        assert set(titles[3:]) == own
        logs = next(tab["link"] for tab in shown.context["tabs"] if tab["title"] == "Request log")
        assert logs == f"/admin/logs/requestlog/?organization__id__exact={world.acme.pk}"
        keys = operator.get(page("organizations_organization_keys", world.acme.pk))
        [row] = keys.context["table"]["rows"]
        assert (row[1], row[5], key.masked_token in row[0]) == ("<b>checkout", mark_numbers("0.00"), True)
        assert "<b>checkout" not in keys.content.decode()
        assert len(operator.get(keys.context["full_list"]).context["cl"].result_list) == 1
        assert (
            len(operator.get(page("organizations_organization_members", world.acme.pk)).context["table"]["rows"]) == 3
        )
        [gift] = operator.get(page("organizations_organization_transactions", world.acme.pk)).context["table"]["rows"]
        assert gift[1:] == (
            "Credit Gift",
            mark_numbers("12.50 USD"),
            mark_numbers("12.50"),
            "completed",
            "Welcome",
        )
        audit = operator.get(page("organizations_organization_audit", world.acme.pk)).context["table"]["rows"]
        assert [entry[1] for entry in audit[:2]] == ["credit_gift.create", "api_key.create"]

    def test_the_list_tells_whose_it_is_and_finds_it(self, operator: Client, world: World) -> None:
        path = page("organizations_organization_changelist")
        for words in ("Acme", "olivia@", str(world.acme.pk)):
            shown = operator.get(path, {"q": words})
            assert [row.name for row in shown.context["cl"].result_list] == ["Acme"]
            assert "olivia@example.com" in shown.content.decode()
            assert "0E-12" not in shown.content.decode()

    def test_a_change_is_the_apis_action_and_stands_in_the_history(self, operator: Client, world: World) -> None:
        path = page("organizations_organization_change", world.acme.pk)
        low = operator.post(path, filled(operator, path, auto_top_up_threshold="4"))
        assert list(low.context["adminform"].form.errors) == ["auto_top_up_threshold"]
        assert operator.post(path, filled(operator, path, name="Acme Inc")).status_code == 302
        entry = AuditEntry.objects.latest("id")
        assert (entry.action, entry.details) == (
            "organization.update",
            {"changes": {"name": {"from": "Acme", "to": "Acme Inc"}}},
        )
        history = operator.get(page("organizations_organization_history", world.acme.pk))
        assert [row[1] for row in history.context["table"]["rows"]] == ["organization.update", "organization.create"]
        assert history.context["table"]["rows"][0][3] == "op@example.com (admin)"


class TestMembers:
    def test_the_last_owner_stays_and_what_was_typed_too(self, operator: Client, world: World) -> None:
        owner = Membership.objects.get(organization=world.acme, role=Role.OWNER)
        path = page("organizations_membership_change", owner.pk)
        response = operator.post(path, {"role": "developer"})
        form = response.context["adminform"].form
        assert form.non_field_errors() == ["The last owner of an organization stays its owner"]
        assert form["role"].value() == "developer"
        assert operator.post(page("organizations_membership_delete", owner.pk), {"post": "yes"}).status_code == 302
        owner.refresh_from_db()
        assert owner.role == Role.OWNER

    def test_who_is_removed_loses_the_keys(self, operator: Client, world: World) -> None:
        key = make_key(world.dana, world.project).key
        place = Membership.objects.get(organization=world.acme, user=world.dana)
        assert operator.post(page("organizations_membership_delete", place.pk), {"post": "yes"}).status_code == 302
        assert ApiKey.objects.get(pk=key.pk).status == "deleted"
        assert AuditEntry.objects.latest("id").action == "member.delete"


class TestKeys:
    def test_limits_are_held_to_what_the_api_takes(self, operator: Client, world: World) -> None:
        key = make_key(world.olivia, world.project).key
        path = page("keys_apikey_change", key.pk)
        wrong = {"usage_limit": "-1", "period_limit": "5", "requests_per_minute": "0", "allowed_origins": "example"}
        response = operator.post(path, filled(operator, path, **wrong))
        assert set(response.context["adminform"].form.errors) == set(wrong)
        right = {"usage_limit": "7.5", "period_limit": "5", "period": "day", "allowed_origins": "https://A.example\n"}
        assert operator.post(path, filled(operator, path, **right)).status_code == 302
        key.refresh_from_db()
        assert (key.usage_limit, key.period_limit, key.period) == (Decimal("7.5"), Decimal(5), "day")
        assert key.allowed_origins == ["https://a.example"]
        entry = AuditEntry.objects.latest("id")
        assert (entry.action, entry.actor_type) == ("api_key.update", "admin")
        assert filled(operator, path)["usage_limit"] == "7.5"

    def test_access_rules_are_typed(self, operator: Client, world: World) -> None:
        key = make_key(world.olivia, world.project).key
        add, own = page("keys_iamrule_add"), {"api_key": str(key.pk), "status": "active"}
        refused = operator.post(add, {**own, "rule_type": "deny_models", "models": " \n"})
        assert list(refused.context["adminform"].form.errors) == ["models"]
        assert not IamRule.objects.exists()
        operator.post(add, {**own, "rule_type": "deny_models", "models": "gpt-5\n o3 \n", "providers": "openai"})
        rule = IamRule.objects.get()
        assert rule.rule_value == {"models": ["gpt-5", "o3"]}
        path = page("keys_iamrule_change", rule.pk)
        assert filled(operator, path)["models"] == "gpt-5\no3"
        paid = {"rule_type": "allow_pricing", "pricing_type": "paid", "max_input_price": "2.50"}
        assert operator.post(path, filled(operator, path, **paid)).status_code == 302
        rule.refresh_from_db()
        assert rule.rule_value == {"pricingType": "paid", "maxInputPrice": "2.5"}
        assert [one.action for one in AuditEntry.objects.order_by("-id")[:2]] == ["iam_rule.update", "iam_rule.create"]


def test_organizations_are_not_added_here(operator: Client, world: World) -> None:
    assert operator.get(page("organizations_organization_add")).status_code == 403
    assert Organization.objects.count() == 2


def test_a_key_that_somebody_sent_is_found_whole_and_masked(operator: Client, world: World) -> None:
    made, other = make_key(world.olivia, world.project, "leaked"), make_key(world.olivia, world.project, "other")
    masked = made.key.masked_token
    for sent in (made.token, f" {made.token} ", masked, masked.replace("...", "…")):
        rows = operator.get(page("keys_apikey_changelist"), {"q": sent}).context["cl"].result_list
        assert [row.pk for row in rows] == [made.key.pk], sent
    for sent in (f"{made.token}x", "gw_dev_", f"gw_live_...{made.key.last_four}"):
        assert list(operator.get(page("keys_apikey_changelist"), {"q": sent}).context["cl"].result_list) == [], sent
    by_words = operator.get(page("keys_apikey_changelist"), {"q": "other"}).context["cl"].result_list
    assert [row.pk for row in by_words] == [other.key.pk]


def test_what_was_refused_is_found_by_customer_and_by_key(operator: Client, world: World) -> None:
    key, theirs = make_key(world.olivia, world.project, "checkout").key, new_id()
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    for organization_id, api_key_id in ((world.acme.id, key.id), (world.elsewhere.id, theirs)):
        refused = {"organization_id": organization_id, "api_key_id": api_key_id, "hour": hour, "last_at": hour}
        RefusedHour.objects.create(**refused, status=402, code="x", count=3)
    tabs = operator.get(page("organizations_organization_change", world.acme.pk)).context["tabs"]
    [link] = [tab["link"] for tab in tabs if tab["title"] == "Refused requests"]
    for shown in (operator.get(link), operator.get(page("logs_refusedhour_changelist"), {"q": str(key.id)})):
        assert [row.api_key_id for row in shown.context["cl"].result_list] == [key.id]
        text = shown.content.decode()
        assert (
            f'<a href="{page("organizations_organization_change", world.acme.pk)}" class="text-link">Acme</a>' in text
        )
        assert f'<a href="{page("keys_apikey_change", key.pk)}" class="text-link">checkout</a>' in text
    # A key that is gone has no page to lead to.
    whole = operator.get(page("logs_refusedhour_changelist")).content.decode()
    assert str(theirs) in whole
    assert page("keys_apikey_change", theirs) not in whole
