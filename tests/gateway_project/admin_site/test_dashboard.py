"""The dashboard: right numbers, links that lead on, panels that say when a store is away, and who sees what."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission
from django.core.management import call_command
from django.db import OperationalError
from django.test import Client
from redis.exceptions import ConnectionError as RedisConnectionError

from apps.catalog import catalog_cache
from apps.gateway.models import Reconciliation
from apps.gateway.routing.circuit_breaker import CIRCUIT_BREAKERS
from apps.gateway.settlement import outbox
from apps.kernel.pages import number_formats
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import client as redis
from apps.logs import traffic
from apps.organizations.actions import create_operator
from apps.organizations.models import Organization, User
from gateway_project.admin_site import operator_groups
from gateway_project.admin_site.navigation import GROUPS, PLAIN_NAMES, groups
from gateway_project.diagnosis import registry
from gateway_project.observability import task_metrics
from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import PASSWORD, World, make_key, world
from tests.support.shipped_catalog import stock

__all__ = ["world"]


@pytest.fixture
def operator(db: None) -> Client:
    client = Client()
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    return client


def member_of(name: str) -> Client:
    """Return the browser of an operator who is in one group alone."""
    user = User.objects.create(email=f"{name}@example.com", is_staff=True)
    user.groups.add(Group.objects.get(name=name))
    client = Client()
    client.force_login(user)
    return client


def some_traffic(world: World) -> None:
    key = make_key(world.olivia, world.project).key
    write(
        entry(key, cost=Decimal("1.5"), prompt_tokens=12_000, completion_tokens=500, duration=1_000),
        entry(key, id=id_at(ago(minutes=1)), has_error=True, unified_finish_reason="upstream_error", duration=1_000),
        entry(key, id=id_at(ago(hours=30)), cost=Decimal(100)),
    )


class TestTraffic:
    def test_small_amounts_are_written_out_beside_the_bars(self, world: World, operator: Client) -> None:
        write(entry(make_key(world.olivia, world.project).key, cost=Decimal("0.000025")))
        page = unescape(operator.get("/admin/").content.decode())
        assert page.count('"format": {"notation": "standard"}') == 4

    def test_the_figures_are_those_of_the_window(self, operator: Client, world: World) -> None:
        some_traffic(world)
        told = operator.get("/admin/", {"window": "24h"}).context["traffic"]
        figures = {one.title: one.value for one in told["figures"]}
        assert (figures["Requests"], figures["Error share"], figures["Spend"]) == ("2", "50%", "$1.50")
        assert figures["Tokens"] == "12.5 k"
        week = operator.get("/admin/", {"window": "7d"}).context["traffic"]
        assert {one.title: one.value for one in week["figures"]}["Spend"] == "$101.50"
        assert operator.get("/admin/", {"window": "of the moon"}).context["window"].name == "24h"

    def test_what_was_used_most_leads_to_its_requests_and_its_owner(self, operator: Client, world: World) -> None:
        some_traffic(world)
        tables = {one.title: one.rows for one in operator.get("/admin/").context["traffic"]["tables"]}
        [[organization, requests, *_]] = tables["Organizations"]
        assert organization.text == "Acme"
        assert organization.href == f"/admin/organizations/organization/{world.acme.id}/change/"
        rows = operator.get(requests.href).context["cl"].result_list
        assert {row.organization_id for row in rows} == {world.acme.id}
        [ended] = [row for row in tables["How requests ended"] if row[0].text == "upstream error"]
        assert [row.has_error for row in operator.get(ended[0].href).context["cl"].result_list] == [True]

    def test_without_requests_it_says_what_to_do(self, operator: Client) -> None:
        text = operator.get("/admin/").content.decode()
        assert "No request in this window." in text
        assert "/v1/chat/completions" in text

    def test_names_of_tenants_are_escaped(self, operator: Client, world: World) -> None:
        Organization.objects.filter(pk=world.acme.pk).update(name="<script>alert(1)</script>")
        write(entry(make_key(world.olivia, world.project).key, used_model="<img src=x>", used_provider="<b>"))
        text = operator.get("/admin/").content.decode()
        assert "<script>alert" not in text
        assert "<img src=x>" not in text


class TestSystem:
    def test_tasks_outbox_and_reconciliation_are_told_with_their_ages(self, operator: Client, world: World) -> None:
        task_metrics.plan({"logs.roll_up": 60.0, "gateway.reconcile": 86_400.0})
        Reconciliation.objects.create(finished_at=datetime.now(UTC) - timedelta(hours=2), compared=5, counts={"a": 1})
        outbox.push("worker", b"{}")
        tables = dict(operator.get("/admin/").context["tables"])
        assert [row[0].text for row in tables["Scheduled tasks"].rows] == ["Gateway: reconcile", "Logs: roll up"]
        states = {row[0].text: row[1] for row in tables["Stores"].rows}
        assert {states[name].text for name in ("PostgreSQL", "Valkey")} == {"Reachable"}
        assert states["Outbox"].text.startswith("1 records wait, the oldest for ")
        assert states["Reconciliation"].text == (
            "1 differences in 5 requests, 2 h ago → look at Differences in the admin, and whether worker and beat run"
        )
        assert states["Reconciliation"].tone == "bad"

    def test_a_task_that_has_not_succeeded_for_two_periods_is_late(self, world: World) -> None:
        task_metrics.plan({"logs.roll_up": 60.0, "gateway.reconcile": 86_400.0})
        redis().hset("tasks", "logs.roll_up succeeded_at", str(ago(minutes=4).timestamp()))
        assert {one.name: one.late for one in task_metrics.read_states()} == {
            "gateway.reconcile": False,
            "logs.roll_up": True,
        }

    def test_who_runs_out_of_credits_is_told(self, operator: Client, world: World) -> None:
        key = make_key(world.olivia, world.project).key
        Organization.objects.filter(pk=world.acme.pk).update(credits=5)
        write(entry(key, cost=Decimal(4)))
        traffic.fold()
        table = dict(operator.get("/admin/").context["tables"])["Low balances"]
        assert [[cell.text for cell in row] for row in table.rows] == [["Acme", "$5.00", "$4.00", "1 d 6 h"]]

    def test_the_board_has_open_circuits_and_uptime(self, operator: Client, world: World) -> None:
        CIRCUIT_BREAKERS.reset()
        for _ in range(5):
            CIRCUIT_BREAKERS.record_failure("openai/gpt-5")
        CIRCUIT_BREAKERS.record_success("openai/gpt-4", first_token_ms=90, tokens=10, seconds=1)
        CIRCUIT_BREAKERS.sync()
        [line] = [one for one in operator.get("/admin/").context["board"] if one["id"] == "openai"]
        assert (line["id"], line["open"], line["asked"], line["uptime"]) == ("openai", "gpt-5", "6", "16.7%")
        CIRCUIT_BREAKERS.reset()

    def test_a_provider_of_the_board_leads_to_where_it_is_switched_off(self, operator: Client, world: World) -> None:
        stock()
        generation.bump(generation.CATALOG)
        key = make_key(world.olivia, world.project).key
        write(entry(key, used_provider="openai"), entry(key, used_provider="no-longer-there"))
        traffic.fold()
        shown = operator.get("/admin/").content.decode()
        assert '<th scope="row"><a href="/admin/catalog/provider/openai/change/">OpenAI</a></th>' in shown
        assert '<th scope="row">no-longer-there</th>' in shown


class TestAbsence:
    def test_a_store_that_is_away_is_said_to_be(
        self, operator: Client, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(*_: Any, **__: Any) -> Any:
            raise RedisConnectionError

        monkeypatch.setattr(outbox, "depth", away)
        monkeypatch.setattr(task_metrics, "read_states", away)
        monkeypatch.setattr(catalog_cache, "current", away)
        checks = tuple(replace(one, find=away) if one.name == "redis" else one for one in registry.CHECKS)
        monkeypatch.setattr(registry, "CHECKS", checks)
        response = operator.get("/admin/")
        assert response.status_code == 200
        tables = dict(response.context["tables"])
        assert response.context["board"] is None
        assert tables["Scheduled tasks"] is None
        states = {row[0].text: row[1].text for row in tables["Stores"].rows}
        assert (states["Valkey"], states["Outbox"], states["PostgreSQL"]) == (
            "Not reachable",
            "Not reachable",
            "Reachable",
        )

    def test_a_question_that_takes_too_long_spoils_no_other(
        self, operator: Client, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def slow(*_: Any) -> Any:
            raise OperationalError

        monkeypatch.setattr("gateway_project.admin_site.pages.read_report", slow)
        response = operator.get("/admin/")
        assert "Traffic: not reachable" in response.content.decode()
        assert dict(response.context["tables"])["Stores"] is not None


class TestWhoSeesWhat:
    def test_migrating_makes_the_groups_once_and_then_leaves_them_alone(self, db: None) -> None:
        made = {group.name: group.permissions.count() for group in Group.objects.all()}
        assert set(made) == {"support", "finance", "admin"}
        assert all(made.values())
        support = Group.objects.get(name="support")
        support.permissions.clear()
        # As an upgrade does, from a version that did not create them.
        Group.objects.get(name="finance").delete()
        call_command("migrate", verbosity=0)
        now = {group.name: group.permissions.count() for group in Group.objects.all()}
        assert now == {**made, "support": 0}

    def test_a_migration_adds_the_permissions_of_new_tables_and_no_others(self, db: None) -> None:
        finance = Group.objects.get(name="finance")
        finance.permissions.remove(Permission.objects.get(codename="view_ledgerentry"))
        # A table of the next version.
        Permission.objects.get(codename="view_clearingaccount").delete()
        before = set(finance.permissions.values_list("codename", flat=True))
        assert before.isdisjoint({"view_ledgerentry", "view_clearingaccount"})
        call_command("migrate", verbosity=0)
        assert set(finance.permissions.values_list("codename", flat=True)) == before | {"view_clearingaccount"}

    def test_every_permission_of_a_group_is_there(self, db: None) -> None:
        """A table that is renamed would be taken away from the groups without a word."""
        support = Group.objects.get(name="support").permissions
        for label, verbs in operator_groups._SUPPORT.items():
            app, _, model = label.partition(".")
            for verb in ("view", *verbs):
                assert support.filter(content_type__app_label=app, codename=f"{verb}_{model}").exists(), label

    @pytest.mark.parametrize(
        ("name", "open_pages", "closed"),
        [
            ("support", ["logs/requestlog", "keys/iamrule/add"], ["billing/ledgerentry", "billing/discount/add"]),
            ("finance", ["billing/ledgerentry", "billing/discount/add"], ["keys/iamrule", "organizations/passkey"]),
            ("admin", ["billing/discount/add", "keys/iamrule"], ["organizations/user/add", "auth/group/add"]),
        ],
    )
    def test_a_group_sees_its_own(self, db: None, name: str, open_pages: list[str], closed: list[str]) -> None:
        browser = member_of(name)
        assert browser.get("/admin/").context["traffic"] is not None
        assert {browser.get(f"/admin/{path}/").status_code for path in open_pages} == {200}
        assert {browser.get(f"/admin/{path}/").status_code for path in closed} == {403}

    def test_an_operator_of_no_group_is_told_so(self, db: None) -> None:
        client = Client()
        client.force_login(User.objects.create(email="new@example.com", is_staff=True))
        response = client.get("/admin/")
        assert "You have no permissions yet" in response.content.decode()
        assert "traffic" not in response.context


class TestNavigation:
    def test_every_table_is_in_one_group_under_a_plain_name(self, operator: Client) -> None:
        listed = [label for tables in GROUPS.values() for label in tables]
        registered = {model._meta.label_lower for model in admin.site._registry}
        assert len(listed) == len(set(listed))
        assert set(listed) | set(PLAIN_NAMES) <= registered
        request = operator.get("/admin/").wsgi_request
        titles = {group["title"]: [item["title"] for item in group["items"]] for group in groups(request)}
        assert list(titles) == ["Monitor", "Customers", "Money", "Catalog", "System"]
        assert titles["Monitor"][:2] == ["Dashboard", "Request log"]
        every = {title for items in titles.values() for title in items}
        assert every & {"Iam rules", "Activity deltas", "Idempotent answers", "Auth tokens"} == set()
        assert len(every) == len(registered) + 1


class TestNumberFormats:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (number_formats.usd(Decimal("1234.5")), "$1,234.50"),
            (number_formats.usd(Decimal("0.000012750000")), "$0.000013"),
            (number_formats.usd(Decimal("0E-12")), "$0.00"),
            (number_formats.usd(Decimal("-3")), "-$3.00"),
            (number_formats.short_count(9_999), "9,999"),
            (number_formats.short_count(2_500_000), "2.5 M"),
            (number_formats.percent(99.995), ">99.99%"),
            (number_formats.share(0, 0), number_formats.NOTHING),
            (number_formats.milliseconds(999), "999 ms"),
            (number_formats.milliseconds(125_000), "2 min 5 s"),
            (number_formats.seconds(0), "0 s"),
            (number_formats.seconds(90_000), "1 d 1 h"),
        ],
    )
    def test_people_read_them(self, text: str, expected: str) -> None:
        assert text == expected
