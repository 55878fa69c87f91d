"""The overview: sums of an organization's own days; and the first steps before there is a request."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from apps.billing import gifts
from apps.console.snippets import first_requests
from apps.keys.models import ApiKey
from apps.keys.secrets import digest_of
from apps.logs.models import ActivityDelta, RefusedHour
from apps.organizations.models import Project
from tests.logs.entries import entry, write
from tests.support.cast import World, make_key
from tests.support.console_client import Visitor, page, words


def add_day(key: ApiKey, model: str, days_ago: int = 0, **sums: int | Decimal) -> None:
    ActivityDelta.objects.create(
        date=datetime.now(UTC).date() - timedelta(days=days_ago),
        organization_id=key.project.organization_id,
        project_id=key.project_id,
        api_key_id=key.id,
        model=model,
        provider="openai",
        **sums,
    )


def test_sums_and_bars_are_of_this_organization_and_these_days_alone(world: World) -> None:
    key, other = make_key(world.dana, world.project).key, make_key(world.sam, world.elsewhere_project).key
    add_day(key, "gpt-5", request_count=3, error_count=1, total_tokens=900, cost=Decimal("1.25"))
    add_day(key, "gpt-5-mini", 6, request_count=1, cache_count=1, total_tokens=100, cost=Decimal("0.25"))
    add_day(key, "old", 7, request_count=50, cost=Decimal(50))
    add_day(other, "secret", request_count=7, cost=Decimal(7))
    response = Visitor(world.dana).open(page(world.acme))
    totals = response.context["totals"]
    assert (totals["request_count"], totals["cost"], totals["error_share"], totals["cache_share"]) == (
        4,
        Decimal("1.5"),
        Decimal("0.25"),
        Decimal("0.25"),
    )
    chart = response.context["chart"]
    assert (len(chart["labels"]), chart["unit"]) == (7, "USD")
    assert [(one["name"], one["values"]) for one in chart["series"]] == [
        ("gpt-5", [0, 0, 0, 0, 0, 0, 1.25]),
        ("gpt-5-mini", [0.25, 0, 0, 0, 0, 0, 0]),
    ]
    month = Visitor(world.dana).open(page(world.acme), days="30", by="requests").context["chart"]
    assert (month["series"][0]["name"], sum(month["series"][0]["values"])) == ("old", 50)
    # A value that the page does not offer is ignored.
    assert Visitor(world.dana).open(page(world.acme), days="9999999999", by="<script>").context["days"] == 7


def test_the_latest_failures_are_listed_with_who_failed(world: World) -> None:
    key = make_key(world.dana, world.project).key
    failure = {"has_error": True, "unified_finish_reason": "upstream_error", "status_code": 502}
    _, failed = write(entry(key), entry(key, **failure, error_details={"status": 502, "code": "rate_limited"}))
    response = Visitor(world.dana).open(page(world.acme))
    assert f'<a href="{page(world.acme, f"logs/{failed}")}"><time' in response.content.decode()
    assert [row["failure"] for row in response.context["failures"]] == ["The provider: rate limited"]


def test_the_first_key_is_made_by_a_button_shown_once_and_stands_in_the_examples(world: World) -> None:
    visitor = Visitor(world.olivia)
    assert "Waiting for your first request" in words(visitor.open(page(world.acme)))
    first, second = (visitor.send(page(world.acme, "first-key"), once="one form") for _ in range(2))
    token = first.context["token"]
    assert second.context["token"] == token
    made = ApiKey.objects.get()
    assert (bytes(made.digest), made.created_by, made.project) == (digest_of(token), world.olivia, world.project)
    assert all(token in one.code for one in first.context["first_requests"])
    assert token not in visitor.open(page(world.acme)).content.decode()


def test_without_an_active_project_one_is_needed_first(world: World) -> None:
    Project.objects.filter(pk=world.project.pk).update(status=Project.Status.ARCHIVED)
    response = Visitor(world.olivia).send(page(world.acme, "first-key"))
    assert response["Location"] == page(world.acme, "projects")
    assert ApiKey.objects.count() == 0


def test_the_part_that_waits_says_when_the_first_request_came_and_then_asks_no_more(world: World) -> None:
    key, visitor = make_key(world.olivia, world.project).key, Visitor(world.olivia)
    waiting = visitor.open(page(world.acme, "first-request"))
    assert b'hx-trigger="every 2s"' in waiting.content
    assert b"<html" not in waiting.content
    write(entry(key))
    arrived = visitor.open(page(world.acme, "first-request"))
    assert "Your first request arrived." in words(arrived)
    assert b"hx-trigger" not in arrived.content


def test_the_part_that_waits_leads_to_the_request_itself_and_on(world: World) -> None:
    key, visitor = make_key(world.olivia, world.project).key, Visitor(world.olivia)
    [written] = write(entry(key))
    arrived = visitor.open(page(world.acme, "first-request"))
    assert f'href="{page(world.acme, f"logs/{written}")}"' in arrived.content.decode()
    assert "Next: add credits to use any of the models" in words(arrived)
    gifts.give(organization=world.acme, amount=Decimal(5), description="Welcome")
    assert "Next: choose one of the models" in words(visitor.open(page(world.acme, "first-request")))


def test_the_part_that_waits_says_what_the_latest_request_was_refused_for(world: World) -> None:
    key, now = make_key(world.olivia, world.project).key, datetime.now(UTC)
    for minutes, status, code in ((9, 403, "access_denied"), (2, 402, "insufficient_credits")):
        RefusedHour.objects.create(
            organization_id=world.acme.id,
            api_key_id=key.id,
            hour=now - timedelta(minutes=minutes),
            status=status,
            code=code,
            count=1,
            last_at=now - timedelta(minutes=minutes),
        )
    waiting = visitor_waits(world)
    assert "refused with 402: The organization's credits did not cover the request." in waiting
    assert "Waiting for your first request" in waiting
    RefusedHour.objects.update(hour=now - timedelta(days=2))
    assert "refused with" not in visitor_waits(world)


def visitor_waits(world: World) -> str:
    return words(Visitor(world.olivia).open(page(world.acme, "first-request")))


def test_strangers_see_and_make_nothing(world: World) -> None:
    sam = Visitor(world.sam)
    assert sam.open(page(world.acme)).status_code == 403
    assert sam.open(page(world.acme, "first-request")).status_code == 403
    assert sam.send(page(world.acme, "first-key")).status_code == 403
    assert sam.open("/app/o/01990000-0000-7000-8000-000000000000/").status_code == 404
    assert sam.open("/app/o/nothing/").status_code == 404
    assert ApiKey.objects.count() == 0


def test_first_requests_say_address_key_and_model() -> None:
    found = first_requests("https://gateway.example", "gw_live_x", "auto")
    assert [one.name for one in found] == ["curl", "Python", "JavaScript", "Claude Code", "Codex"]
    for one in found:
        base = "https://gateway.example" + ("" if one.name == "Claude Code" else "/v1")
        assert re.search(re.escape(base) + r"[/\"\s]", one.code), one.name
        assert "gw_live_x" in one.code
        assert "auto" in one.code


def test_the_bars_show_requests_where_nothing_was_spent(world: World) -> None:
    add_day(make_key(world.dana, world.project).key, "free", request_count=3)
    dana = Visitor(world.dana)
    assert dana.open(page(world.acme)).context["measure"] == "requests"
    assert dana.open(page(world.acme), by="cost").context["measure"] == "cost"
