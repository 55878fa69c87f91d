"""The search of the admin: what it finds, for whom, and by which index."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.billing.models import Transaction
from apps.logs.models import RequestLog
from apps.organizations.actions import create_operator
from apps.organizations.models import Organization
from gateway_project.admin_site import search as site_search
from gateway_project.admin_site.operator_groups import seed_groups
from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import PASSWORD, World, make_key, make_organization, make_user
from tests.support.shipped_catalog import stock


@pytest.fixture
def operator(db: None) -> Client:
    """A browser in which a superuser has signed in."""
    client = Client()
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    return client


def found(client: Client, term: str) -> dict[str, list[str]]:
    """Return the titles that a search finds, by kind."""
    page = client.get("/admin/find/", {"s": term})
    assert page.status_code == 200
    return {group.title: [one.title for one in group.results] for group in page.context["groups"]}


def test_customers_and_people_are_found_by_id_and_by_the_beginning_of_a_name_or_address(
    operator: Client, world: World
) -> None:
    assert found(operator, "acm") == {"Customers": ["Acme"]}
    assert found(operator, " ACME ") == {"Customers": ["Acme"]}
    assert found(operator, "cme") == {}
    assert found(operator, str(world.acme.id)) == {"Customers": ["Acme"]}
    assert found(operator, str(world.project.id)) == {"Projects": ["Default Project"]}
    assert found(operator, "OLIVIA@example") == {"People": ["olivia@example.com"]}
    assert found(operator, "oliv") == {"People": ["olivia@example.com"]}
    assert found(operator, str(world.dana.id)) == {"People": ["dana@example.com"]}
    assert found(operator, "100%_") == {}
    assert found(operator, "") == {}


def test_keys_are_found_by_their_last_characters_their_mask_and_their_id(operator: Client, world: World) -> None:
    made = make_key(world.dana, world.project, "Shop")
    title = f"{made.key.masked_token} Shop"
    for term in (made.key.last_four, made.key.masked_token, f"…{made.key.last_four}", str(made.key.id)):
        assert found(operator, term) == {"API keys": [title]}, term
    assert found(operator, f"gw_other...{made.key.last_four}") == {}


def test_requests_are_found_by_their_id_and_by_the_id_in_the_answer(operator: Client, world: World) -> None:
    key = make_key(world.dana, world.project).key
    write(entry(key))
    row = RequestLog.objects.get()
    title = f"{row.used_provider}/{row.used_model}"
    assert found(operator, str(row.id)) == {"Requests": [title]}


@pytest.mark.parametrize("later", [-9, -0.001, 0, 0.962, 9])
def test_a_request_is_found_by_an_id_in_the_answer_that_is_older_or_newer_than_the_rows(
    later: float, operator: Client, world: World
) -> None:
    made_at = ago(minutes=1)
    request_id = str(id_at(made_at + timedelta(seconds=later)))
    write(entry(make_key(world.dana, world.project).key, id=id_at(made_at), request_id=request_id))
    assert found(operator, request_id) == {"Requests": ["openai/gpt-5"]}


def test_payments_are_found_by_their_id_and_by_the_processors(operator: Client, world: World) -> None:
    row = Transaction.objects.create(
        organization=world.acme, type="credit_topup", amount=Decimal(10), processor_payment_intent_id="pi_123abc"
    )
    for term in ("pi_123abc", str(row.id)):
        assert found(operator, term) == {"Payments": ["Credit Topup, 10.00 USD"]}
    assert found(operator, "pi_123") == {}


def test_models_providers_and_pages_are_found(operator: Client) -> None:
    stock()
    assert "sandbox/echo" in found(operator, "sandbox/ech")["Offers and prices"]
    assert "Sandbox" in found(operator, "sandbox")["Providers"]
    assert "echo" in found(operator, "echo")["Models"]
    assert found(operator, "reconciliation")["Pages"] == [
        "Nightly reconciliations",
        "Differences found by reconciliation",
    ]


def test_a_group_finds_what_it_may_see(db: None, world: World) -> None:
    stock()
    seed_groups()
    staff = make_user("Fay")
    staff.is_staff = True
    staff.save()
    client = Client()
    client.force_login(staff)
    row = Transaction.objects.create(organization=world.acme, type="credit_topup", amount=Decimal(10))
    assert found(client, "acme") == found(client, str(row.id)) == found(client, "echo") == {}
    staff.groups.add(Group.objects.get(name="finance"))
    client.force_login(type(staff).objects.get(pk=staff.pk))
    assert found(client, "acme") == {"Customers": ["Acme"]}
    assert found(client, str(row.id)) == {"Payments": ["Credit Topup, 10.00 USD"]}
    assert Client().get("/admin/find/?s=acme").status_code == 302


def test_results_are_bounded_and_the_box_shows_the_same(operator: Client, world: World) -> None:
    for number in range(12):
        make_organization(owner=world.sam, name=f"Many {number:02}")
    assert found(operator, "many") == {"Customers": [f"Many {number:02}" for number in range(10)]}
    box = operator.get("/admin/search/", {"s": "many"}).content.decode()
    assert (box.count("/admin/organizations/organization/"), "/admin/find/?s=many" in box) == (10, True)
    assert "Nothing found" in operator.get("/admin/search/", {"s": "zzzz"}).content.decode()
    assert operator.get("/admin/find/", {"s": "x" * 10_000}).status_code == 200


def test_a_name_is_text(operator: Client, world: World) -> None:
    Organization.objects.filter(pk=world.acme.pk).update(name="Acme<script>alert(1)</script>")
    for path in ("/admin/find/", "/admin/search/"):
        body = operator.get(path, {"s": "acme"}).content.decode()
        assert "Acme&lt;script&gt;" in body
        assert "<script>alert" not in body


@pytest.mark.parametrize(
    ("term", "index"),
    [
        ("acme", "organization_name_beginning"),
        ("acme", "user_name_beginning"),
        ("acme", "organizations_user_email_"),
        ("a1B2", "key_last_four"),
        ("pi_123", "top_up_once_per_payment"),
        ("re_123", "billing_transaction_processor_refund_id"),
    ],
)
def test_each_search_of_a_long_table_uses_an_index(world: World, term: str, index: str) -> None:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        for kind in site_search.KINDS:
            list(kind.find(term, None))
    plans: list[Any] = []
    with connection.cursor() as cursor:
        # Tables of a test are so small that reading them whole, by an index or without, is cheapest.
        for way in ("seqscan", "indexscan", "indexonlyscan"):
            cursor.execute(f"SET LOCAL enable_{way} = off")
        for query in queries.captured_queries:
            cursor.execute(f"EXPLAIN {query['sql']}")
            plans.append("\n".join(line for (line,) in cursor.fetchall()))
    used = [plan for plan in plans if index in plan]
    assert used, plans
    assert all("Index Cond" in plan for plan in used)
