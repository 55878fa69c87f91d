"""The request log in the admin: what filters and search find, honest counts, one request's page, audited content."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Permission
from django.db import OperationalError
from django.test import Client

from apps.kernel.pages import admin as kernel_admin
from apps.keys.models import ApiKey, ProviderKey
from apps.logs import traffic
from apps.logs.entry import Entry
from apps.logs.models import TrafficSlot
from apps.organizations.actions import create_operator
from apps.organizations.models import AuditEntry, User
from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import PASSWORD, World, make_key

LIST = "/admin/logs/requestlog/"
SAID, ANSWERED, COMPLAINED = "what the customer said", "what the model answered", "the provider quotes the request"


@pytest.fixture
def operator(db: None) -> Client:
    client = Client()
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    return client


@pytest.fixture
def key(world: World) -> ApiKey:
    return make_key(world.olivia, world.project).key


@pytest.fixture
def ids(key: ApiKey, world: World) -> dict[str, UUID]:
    """Rows by their special feature; the first four are of the last day."""
    others = make_key(world.sam, world.elsewhere_project).key
    rows: dict[str, Entry] = {
        "plain": entry(key, id=id_at(ago(minutes=5)), request_id="req-plain"),
        "failed": entry(
            key,
            id=id_at(ago(minutes=10)),
            has_error=True,
            status_code=502,
            unified_finish_reason="upstream_error",
            used_model="gpt-5-mini",
            used_provider="azure",
        ),
        "claude": entry(key, id=id_at(ago(hours=3)), used_model="claude-opus-4", used_provider="anthropic"),
        "others": entry(others, id=id_at(ago(hours=5)), used_model="gemini-2.5-pro", used_provider="google"),
        "old": entry(key, id=id_at(ago(days=3)), used_model="o1-rare", used_provider="openai"),
    }
    write(*rows.values())
    return {name: row.id for name, row in rows.items()}


def found(operator: Client, **query: str) -> list[UUID]:
    response = operator.get(LIST, query)
    assert response.status_code == 200
    return [row.pk for row in response.context["cl"].result_list]


class TestFinding:
    @pytest.mark.parametrize(
        ("query", "names"),
        [
            ({}, ["plain", "failed", "claude", "others"]),
            ({"time": "1h"}, ["plain", "failed"]),
            ({"time": "7d"}, ["plain", "failed", "claude", "others", "old"]),
            ({"ended": "upstream_error"}, ["failed"]),
            ({"status": "5xx"}, ["failed"]),
            ({"status": "2xx", "time": "1h"}, ["plain"]),
            ({"model": "claude-opus-4"}, ["claude"]),
            ({"provider": "azure"}, ["failed"]),
            ({"provider": "azure", "model": "gpt-5"}, []),
            ({"model": "never-used"}, []),
            ({"q": "gpt-5"}, ["plain", "failed"]),
            ({"q": "OPUS"}, ["claude"]),
            ({"q": "google"}, ["others"]),
            ({"q": "req-plain"}, ["plain"]),
            ({"q": "o1-rare"}, []),
            ({"q": "o1-rare", "time": "30d"}, ["old"]),
            ({"q": "nothing like it"}, []),
            ({"organization": "no id"}, []),
            ({"time": "of the moon"}, ["plain", "failed", "claude", "others", "old"]),
        ],
    )
    def test_filters_and_words(
        self, operator: Client, ids: dict[str, UUID], query: dict[str, str], names: list[str]
    ) -> None:
        assert found(operator, **query) == [ids[name] for name in names]
        traffic.fold()
        assert found(operator, **query) == [ids[name] for name in names], "the same once it is folded"

    def test_ids_are_found_at_all_times(self, operator: Client, ids: dict[str, UUID], world: World) -> None:
        assert found(operator, q=str(ids["old"])) == [ids["old"]]
        assert found(operator, q=f" {world.elsewhere.id} ") == [ids["others"]]
        assert found(operator, organization=str(world.elsewhere.id)) == [ids["others"]]

    def test_rows_from_before_the_counting_are_found(self, operator: Client, ids: dict[str, UUID]) -> None:
        traffic.fold()
        TrafficSlot.objects.filter(starts_at__lt=ago(hours=1)).delete()
        assert found(operator, model="claude-opus-4") == [ids["claude"]]

    def test_what_would_take_too_long_is_said_and_narrowed(
        self, operator: Client, ids: dict[str, UUID], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def slow(*_: Any, **__: Any) -> Any:
            raise OperationalError

        monkeypatch.setattr("apps.logs.admin.request_log.within_hours", slow)
        response = operator.get(LIST, {"model": "gpt-5", "time": "30d"})
        assert (response.status_code, response["Location"]) == (302, "?model=gpt-5&time=1h")


class TestHonesty:
    def test_counts_say_what_is_known(
        self, operator: Client, ids: dict[str, UUID], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert operator.get(LIST).context["cl"].paginator.told == "4"
        monkeypatch.setattr(kernel_admin, "SHOWN", 3)
        assert operator.get(LIST).context["cl"].paginator.told == "more than 3"

    def test_nothing_is_offered_that_would_scan_or_cannot_be_done(self, operator: Client, ids: dict[str, UUID]) -> None:
        empty = operator.get(LIST, {"q": "nothing like it"}).content.decode()
        assert "Create" not in empty
        assert "No entry matches the search" in empty
        assert "?o=" not in operator.get(LIST).content.decode(), "no column sorts"
        assert found(operator, o="5") == found(operator), "nor by hand"

    def test_cells_are_written_for_people(self, operator: Client, key: ApiKey) -> None:
        write(entry(key, cost=Decimal("0.000012750000"), duration=61_000, total_tokens=12_345))
        text = operator.get(LIST).content.decode()
        assert "$0.000013" in text
        assert '<data value="1" data-number="">1</data> min <data value="1" data-number="">1</data> s' in text
        assert "12,345" in text
        assert f"/admin/organizations/organization/{key.project.organization_id}/change/" in text


@pytest.fixture
def kept(key: ApiKey) -> UUID:
    routing = {
        "selectionReason": "weighted-score",
        "providerScores": [
            {"providerId": "azure", "score": 0.93, "price": 1.25, "uptime": 97.5, "latency": 410.0, "throughput": None},
            {"providerId": "openai", "score": 0.5, "price": 2, "uptime": 100, "latency": None, "throughput": 80.5},
        ],
        "routing": [
            {"provider": "azure", "model": "gpt-5", "status_code": 503, "error_type": "overloaded", "succeeded": False},
            {"provider": "openai", "model": "gpt-5", "status_code": 200, "error_type": "none", "succeeded": True},
        ],
    }
    [identifier] = write(
        entry(
            key,
            cost=Decimal("0.00625"),
            input_cost=Decimal("0.0025"),
            output_cost=Decimal("0.00375"),
            prompt_tokens=1_000,
            completion_tokens=375,
            routing_metadata=routing,
            retention_level="retain",
            messages=[{"role": "user", "content": SAID}],
            content=ANSWERED,
            has_error=True,
            error_details={"type": "upstream_error", "code": "overloaded", "status": 502, "message": COMPLAINED},
        )
    )
    return identifier


class TestOneRequest:
    def test_the_page_tells_attempts_scores_costs_and_the_error(
        self, operator: Client, kept: UUID, key: ApiKey
    ) -> None:
        response = operator.get(f"{LIST}{kept}/change/")
        page = response.context["page"]
        assert [(one.provider, one.outcome, one.score) for one in page.waterfall.attempts] == [
            ("azure", "failed, HTTP 503, overloaded", "0.93"),
            ("openai", "answered, HTTP 200", "0.50"),
        ]
        costs = [(one.title, one.tokens, one.amount) for one in page.costs]
        assert costs == [("Input", "1,000", "$0.0025"), ("Output", "375", "$0.00375")]
        assert page.total_cost == "$0.00625"
        assert {fact.title: fact.value for fact in page.failure} == {
            "Class": "upstream_error",
            "Code": "overloaded",
            "Status": "502",
        }
        links = {fact.title: fact.href for fact in page.facts if fact.href}
        assert links == {
            "Organization": f"/admin/organizations/organization/{key.project.organization_id}/change/",
            "Project": f"/admin/organizations/project/{key.project_id}/change/",
            "API key": f"/admin/keys/apikey/{key.id}/change/",
        }

    def test_content_is_shown_by_a_button_alone_and_that_is_taken_down(
        self, operator: Client, kept: UUID, key: ApiKey
    ) -> None:
        text = operator.get(f"{LIST}{kept}/change/").content.decode()
        assert [words for words in (SAID, ANSWERED, COMPLAINED) if words in text] == []
        assert operator.get(f"{LIST}{kept}/content/").status_code == 405
        assert not AuditEntry.objects.filter(action="log.show_content").exists()

        shown = operator.post(f"{LIST}{kept}/content/").content.decode()
        assert [words for words in (SAID, ANSWERED, COMPLAINED) if words not in shown] == []
        [noted] = AuditEntry.objects.filter(action="log.show_content")
        assert (noted.organization_id, noted.resource_id) == (key.project.organization_id, str(kept))
        assert (noted.actor_type, noted.actor_email) == ("admin", "op@example.com")

    def test_who_may_only_look_sees_no_content(self, kept: UUID) -> None:
        user = User.objects.create(email="helper@example.com", is_staff=True)
        user.user_permissions.add(Permission.objects.get(codename="view_requestlog"))
        helper = Client()
        helper.force_login(user)
        assert "Show content" not in helper.get(f"{LIST}{kept}/change/").content.decode()
        response = helper.post(f"{LIST}{kept}/content/")
        assert response.status_code == 403
        assert SAID not in response.content.decode()
        assert not AuditEntry.objects.filter(action="log.show_content").exists()

    def test_where_nothing_is_kept_there_is_no_button(self, operator: Client, ids: dict[str, UUID]) -> None:
        assert "Show content" not in operator.get(f"{LIST}{ids['plain']}/change/").content.decode()
        assert operator.post(f"{LIST}{ids['plain']}/content/").status_code == 404
        assert not AuditEntry.objects.filter(action="log.show_content").exists()

    def test_words_of_customers_are_escaped(self, operator: Client, key: ApiKey) -> None:
        said = [{"role": "<b>", "content": "<script>alert(1)</script>"}, "no object", {"content": [{"type": "x"}]}]
        [identifier] = write(
            entry(key, messages=said, retention_level="retain", requested_model="<i>", routing_metadata=["odd"])
        )
        text = operator.post(f"{LIST}{identifier}/content/").content.decode()
        assert "<script>alert(1)" not in text
        assert "&lt;script&gt;alert(1)" in text

    def test_a_request_that_is_gone_is_nowhere(self, operator: Client) -> None:
        assert operator.get(f"{LIST}{id_at(ago(days=1))}/change/").status_code == 302
        assert operator.get(f"{LIST}no-id/change/").status_code == 302

    def test_a_request_paid_with_a_provider_key_links_to_the_key(
        self, operator: Client, key: ApiKey, world: World
    ) -> None:
        provider_key = ProviderKey.objects.create(
            organization=world.acme, provider="openai", encrypted_token=b"", last_four="1234"
        )
        [identifier] = write(entry(key, provider_key_id=provider_key.id, used_mode="api-keys"))
        page = operator.get(f"{LIST}{identifier}/change/").context["page"]
        [fact] = [fact for fact in page.facts if fact.title == "Provider key"]
        assert fact.value == f"openai ({provider_key.id})"
        assert fact.href == f"/admin/keys/providerkey/{provider_key.id}/change/"

    def test_values_that_customers_chose_are_not_shown(self, operator: Client, key: ApiKey) -> None:
        [identifier] = write(entry(key, source="their-web-site", custom_headers={"team": "their-team"}))
        text = operator.get(f"{LIST}{identifier}/change/").content.decode()
        assert [words for words in ("their-web-site", "their-team") if words in text] == []
