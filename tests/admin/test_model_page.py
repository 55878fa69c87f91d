"""The operators' page of a model: offers with their performance, prices, organizations by spend, and who sees which."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from apps.catalog.models import ModelProvider, PriceChange
from apps.logs import performance, rollup
from apps.logs.entry import ProviderOutcome
from apps.organizations.actions import create_operator
from gateway_project.admin_site.operator_groups import seed_groups
from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import PASSWORD, World, default_project, make_key, make_organization, make_user
from tests.support.shipped_catalog import stock

PAGE = "/admin/models/gpt-5/"


@pytest.fixture
def operator(db: None) -> Client:
    """A browser in which a superuser has signed in; the catalog is filled."""
    stock()
    client = Client()
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    return client


def table(answer: Any, beginning: str) -> list[list[str]]:
    """Return the texts of a table by the beginning of its title."""
    [found] = [one for title, one in answer.context["tables"] if title.startswith(beginning)]
    return [[cell.text for cell in row] for row in found.rows]


def outcome(provider: str, *, succeeded: bool = True) -> ProviderOutcome:
    return ProviderOutcome(
        model="gpt-5", provider=provider, succeeded=succeeded, first_token=400, tokens=100, writing=2000
    )


def test_offers_have_state_prices_and_performance(operator: Client) -> None:
    ModelProvider.objects.filter(model="gpt-5", provider="azure").update(active=False, prices={"input": "1.5"})
    write(entry(outcomes=[outcome("openai"), outcome("azure", succeeded=False)]), entry(outcomes=[outcome("openai")]))
    performance.fold()
    offers = {row[0]: row[1:] for row in table(operator.get(PAGE), "Offers")}
    assert offers["azure"] == ["Switched off", "$1.5", "–", "1", "0%", "–", "–", "–"]
    assert (offers["openai"][0], offers["openai"][3:]) == ("Active", ["2", "100%", "395 ms", "427 ms", "49"])


def test_uptime_and_speed_are_of_the_period_that_the_cards_have_until_another_is_chosen(operator: Client) -> None:
    usual, week = operator.get(PAGE), operator.get(f"{PAGE}?window=7d")
    assert '<a href="?window=30d" aria-current="page">30 days</a>' in usual.content.decode()
    assert '<a href="?window=7d" aria-current="page">7 days</a>' in week.content.decode()
    titles = [one.context["tables"][0][0] for one in (usual, week)]
    assert titles == ["Offers with uptime and speed of 30 days", "Offers with uptime and speed of 7 days"]
    assert [one.context["figures"][1].hint for one in (usual, week)] == ["in 30 days"] * 2


def test_prices_have_their_providers_and_authors(operator: Client) -> None:
    PriceChange.objects.create(
        provider="azure",
        model="gpt-5",
        old={"cache_write": "1.25"},
        new={"cache_write": "1.5"},
        author="op@example.com",
    )
    PriceChange.objects.create(provider="azure", model="gpt-5-mini", old={}, new={"input": "9"}, author="x")
    # First prices of the catalog may be below them.
    newest, *others = table(operator.get(PAGE), "Price history")
    assert newest[1:] == ["azure", "Cache write", "1.25", "1.5", "op@example.com"]
    assert "9" not in {row[4] for row in others}


def test_organizations_are_those_that_spent_most_with_totals_of_all(operator: Client, world: World) -> None:
    other = make_organization(owner=world.sam, name="Second")
    keys = make_key(world.olivia, world.project).key, make_key(world.sam, default_project(other)).key
    usual: dict[str, Any] = {"used_model": "gpt-5", "prompt_tokens": 12_000, "completion_tokens": 300}
    write(
        entry(keys[0], cost=Decimal("0.25"), **usual),
        entry(keys[1], cost=Decimal("1.5"), **usual),
        entry(keys[1], cost=Decimal("2"), has_error=True, **usual),
    )
    rollup.roll_up()
    # One that is not folded into the day yet, and others that do not count.
    write(entry(keys[0], cost=Decimal("0.5"), **usual))
    write(
        entry(keys[0], cost=Decimal(7), **{**usual, "used_model": "gpt-5-mini"}),
        entry(keys[0], cost=Decimal(9), id=id_at(ago(days=40)), **usual),
    )
    answer = operator.get(PAGE)
    assert table(answer, "Organizations") == [
        ["Second", "2", "50%", "24.0 k", "600", "$3.50"],
        ["Acme", "2", "0%", "24.0 k", "600", "$0.75"],
    ]
    assert [(one.title, one.value) for one in answer.context["figures"]] == [
        ("Organizations", "2"),
        ("Requests", "4"),
        ("Error share", "25%"),
        ("Spend", "$4.25"),
    ]
    assert f"/admin/organizations/organization/{other.pk}/change/" in answer.content.decode()


def test_an_operator_sees_the_tables_of_its_groups(operator: Client) -> None:
    seed_groups()
    staff = make_user("Fay")
    staff.is_staff = True
    staff.save()
    client = Client()
    client.force_login(staff)
    assert client.get(PAGE).status_code == 403
    staff.groups.add(Group.objects.get(name="finance"))
    client.force_login(type(staff).objects.get(pk=staff.pk))
    assert [title.split()[0] for title, _ in client.get(PAGE).context["tables"]] == ["Offers", "Price", "Organizations"]
    assert Client().get(PAGE).status_code == 302
    assert operator.get("/admin/models/no-such-model/").status_code == 404


def test_the_search_and_the_form_of_a_model_lead_to_it(operator: Client) -> None:
    assert f'href="{PAGE}"' in operator.get("/admin/find/", {"s": "gpt-5"}).content.decode()
    assert f'href="{PAGE}"' in operator.get("/admin/catalog/model/gpt-5/change/").content.decode()
