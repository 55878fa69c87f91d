"""Violations: listed newest first by page and filter, and counted (section 4.3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.guardrails.models import Violation
from apps.guardrails.stored_violations import ViolationCursor
from apps.kernel.ids import new_id
from apps.organizations.models import Organization, Plan
from tests.support.cast import Caller, World, signed_in

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def acme(world: World) -> Organization:
    """Acme, on the plan enterprise."""
    world.acme.plan = Plan.ENTERPRISE
    world.acme.save()
    return world.acme


@pytest.fixture
def adam(world: World) -> Caller:
    """Adam, signed in."""
    return signed_in(world.adam)


def found(organization: Organization, taken: str = "blocked", at: datetime = NOON, **columns: Any) -> Violation:
    """Record a violation."""
    return Violation.objects.create(
        organization_id=organization.id,
        log_id=new_id(),
        action_taken=taken,
        created_at=at,
        **{"rule_id": "system:secrets", "rule_name": "Secrets", "category": "secrets", **columns},
    )


def page(caller: Caller, organization: Organization, **query: Any) -> dict[str, Any]:
    """Return a page of violations."""
    response = caller.get(f"/guardrails/violations/{organization.id}", **query)
    assert response.status_code == 200, response.content
    body: dict[str, Any] = response.json()
    assert set(body) == {"violations", "pagination"}
    return body


def ids(rows: list[Violation]) -> list[str]:
    """Return their ids as they are listed."""
    return [str(row.id) for row in rows]


def listed(caller: Caller, organization: Organization, **query: Any) -> list[str]:
    """Return the ids of the violations of a page."""
    return [one["id"] for one in page(caller, organization, **query)["violations"]]


class TestListing:
    def test_one_is_told_whole(self, adam: Caller, acme: Organization) -> None:
        key = new_id()
        row = found(
            acme,
            "redacted",
            api_key_id=key,
            rule_id="system:pii_detection",
            rule_name="PII detection",
            category="pii",
            matched_pattern="email",
            matched_content="[EMAIL_REDACTED]",
            content_hash="ab" * 32,
            model="gpt-4o",
        )
        assert page(adam, acme)["violations"] == [
            {
                "id": str(row.id),
                "organizationId": str(acme.id),
                "logId": str(row.log_id),
                "ruleId": "system:pii_detection",
                "ruleName": "PII detection",
                "category": "pii",
                "actionTaken": "redacted",
                "matchedPattern": "email",
                "matchedContent": "[EMAIL_REDACTED]",
                "contentHash": "ab" * 32,
                "apiKeyId": str(key),
                "model": "gpt-4o",
                "createdAt": "2026-03-02T12:00:00Z",
            }
        ]

    def test_none_is_an_empty_page(self, adam: Caller, acme: Organization) -> None:
        assert page(adam, acme) == {
            "violations": [],
            "pagination": {"nextCursor": None, "hasMore": False, "limit": 50},
        }

    def test_newest_come_first_whatever_was_done(self, adam: Caller, acme: Organization) -> None:
        kinds = ("blocked", "redacted", "warned", "redacted", "blocked")
        rows = [found(acme, kind, NOON + timedelta(seconds=second)) for second, kind in enumerate(kinds)]
        assert listed(adam, acme) == ids(rows[::-1])

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
    def test_pages_tell_everything_once(self, adam: Caller, acme: Organization, limit: int) -> None:
        """Also those of one moment, which its page divides."""
        moments = [NOON, NOON, NOON, NOON, NOON - timedelta(microseconds=1), NOON - timedelta(days=1), NOON]
        rows = [found(acme, kind, at) for at in moments for kind in ("blocked", "warned")]
        seen: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            body = page(adam, acme, limit=str(limit), **cursor)
            seen += [one["id"] for one in body["violations"]]
            told = body["pagination"]
            assert told["hasMore"] == (told["nextCursor"] is not None) == (len(seen) < len(rows))
            assert told["limit"] == limit
            if not told["hasMore"]:
                break
            cursor = {"cursor": told["nextCursor"]}
        assert seen == ids(sorted(rows, key=lambda row: (row.created_at, row.id), reverse=True))

    def test_a_page_goes_on_where_rows_have_gone_or_come(self, adam: Caller, acme: Organization) -> None:
        rows = [found(acme, at=NOON - timedelta(hours=hours)) for hours in range(4)]
        cursor = page(adam, acme, limit="2")["pagination"]["nextCursor"]
        rows[1].delete()
        found(acme, at=NOON + timedelta(hours=1))
        assert listed(adam, acme, limit="2", cursor=cursor) == ids(rows[2:])

    def test_those_of_others_are_not_told(self, adam: Caller, acme: Organization, world: World) -> None:
        found(world.elsewhere)
        assert listed(adam, acme) == []


class TestFilters:
    @pytest.mark.parametrize("kind", ["blocked", "redacted", "warned", "observed"])
    def test_by_what_was_done(self, adam: Caller, acme: Organization, kind: str) -> None:
        rows = {one: found(acme, one) for one in ("blocked", "redacted", "warned", "observed")}
        assert listed(adam, acme, actionTaken=kind) == ids([rows[kind]])

    def test_what_was_only_observed_is_listed_on_demand(self, adam: Caller, acme: Organization) -> None:
        found(acme, "observed")
        assert listed(adam, acme) == []

    def test_by_rule(self, adam: Caller, acme: Organization) -> None:
        own = str(new_id())
        of_system, of_own = found(acme), found(acme, "warned", rule_id=own)
        assert listed(adam, acme, ruleId="system:secrets") == ids([of_system])
        assert listed(adam, acme, ruleId=own) == ids([of_own])
        assert listed(adam, acme, ruleId=own, actionTaken="blocked") == []
        assert listed(adam, acme, ruleId="system:unknown") == []

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ({"startDate": "2026-03-02T12:00:00Z"}, ["noon", "evening"]),
            ({"startDate": "2026-03-02T14:00:00.000001+02:00"}, ["evening"]),
            ({"endDate": "2026-03-02T13:00:00+01:00"}, ["before", "noon"]),
            ({"startDate": "2026-03-02", "endDate": "2026-03-02"}, ["noon", "evening"]),
            ({"endDate": "2026-03-01"}, ["before"]),
            ({"startDate": "2026-03-03"}, []),
        ],
        ids=str,
    )
    def test_by_date_with_both_ends(
        self, adam: Caller, acme: Organization, query: dict[str, str], expected: list[str]
    ) -> None:
        rows = {
            "before": found(acme, at=NOON - timedelta(days=1)),
            "noon": found(acme, "warned", at=NOON),
            "evening": found(acme, at=datetime(2026, 3, 2, 23, 59, 59, 999_999, tzinfo=UTC)),
        }
        assert listed(adam, acme, **query) == ids([rows[name] for name in reversed(expected)])

    @pytest.mark.parametrize(
        ("query", "path"),
        [
            ({"limit": "0"}, "limit"),
            ({"limit": "101"}, "limit"),
            ({"limit": "x"}, "limit"),
            ({"actionTaken": "allowed"}, "actionTaken"),
            ({"startDate": "yesterday"}, "startDate"),
            ({"endDate": "2026-13-01"}, "endDate"),
            ({"startDate": "2026-03-02T13:00:00Z", "endDate": "2026-03-02T12:00:00Z"}, "startDate"),
            ({"startDate": "2026-03-03", "endDate": "2026-03-02"}, "startDate"),
            ({"ruleId": "r" * 61}, "ruleId"),
            ({"cursor": "x"}, "cursor"),
            ({"cursor": "Z" * 32}, "cursor"),
            ({"cursor": "AA" + "é" * 30}, "cursor"),
        ],
        ids=str,
    )
    def test_what_cannot_be_asked_is_400(
        self, adam: Caller, acme: Organization, query: dict[str, str], path: str
    ) -> None:
        response = adam.get(f"/guardrails/violations/{acme.id}", **query)
        assert (response.status_code, [issue["path"] for issue in response.json()["issues"]]) == (400, [path])

    @pytest.mark.parametrize("moment", [datetime(1970, 1, 1, tzinfo=UTC), NOON, datetime(4000, 1, 1, tzinfo=UTC)])
    def test_a_cursor_says_where_it_came_from(self, moment: datetime) -> None:
        place = ViolationCursor(moment, new_id())
        assert ViolationCursor.read(place.write()) == place


class TestCounting:
    def stats(self, caller: Caller, organization: Organization, **query: str) -> dict[str, int]:
        """Return the counts."""
        response = caller.get(f"/guardrails/stats/{organization.id}", **query)
        assert response.status_code == 200
        counted: dict[str, int] = response.json()
        return counted

    def test_by_what_was_done(self, adam: Caller, acme: Organization, world: World) -> None:
        now = timezone.now()
        for kind, count in (("blocked", 3), ("redacted", 2), ("warned", 1), ("observed", 4)):
            for _ in range(count):
                found(acme, kind, now)
        found(world.elsewhere, at=now)
        expected = {"blocked": 3, "neutralized": 0, "redacted": 2, "warned": 1, "total": 6, "observed": 4}
        assert self.stats(adam, acme) == expected

    def test_of_none_is_zero(self, adam: Caller, acme: Organization) -> None:
        assert self.stats(adam, acme) == {
            "blocked": 0,
            "neutralized": 0,
            "redacted": 0,
            "warned": 0,
            "total": 0,
            "observed": 0,
        }

    @pytest.mark.parametrize(("query", "total"), [({}, 2), ({"days": "1"}, 1), ({"days": "90"}, 3)])
    def test_over_seven_days_or_as_many_as_are_asked(
        self, adam: Caller, acme: Organization, query: dict[str, str], total: int
    ) -> None:
        for days in (0.9, 6.9, 89.9, 90.1):
            found(acme, at=timezone.now() - timedelta(days=days))
        assert self.stats(adam, acme, **query)["total"] == total

    @pytest.mark.parametrize("days", ["0", "91", "-1", "1.5", "week", ""])
    def test_other_numbers_of_days_are_400(self, adam: Caller, acme: Organization, days: str) -> None:
        response = adam.get(f"/guardrails/stats/{acme.id}", days=days)
        assert (response.status_code, [issue["path"] for issue in response.json()["issues"]]) == (400, ["days"])
