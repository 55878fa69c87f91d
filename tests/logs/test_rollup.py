"""Activity equals a recount of everything that was ever written, whatever happens in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from msgspec.structs import replace

from apps.kernel.ids import new_id, time_of
from apps.kernel.rest.envelopes import camel
from apps.logs import hooks, retention, rollup
from apps.logs.activity import ActivityScope, ActivityWindow, find_days, window_of
from apps.logs.entry import Entry
from apps.logs.models import ActivityDelta, RequestLog
from apps.organizations.models import Organization, Plan
from tests.logs.entries import entry, id_at, write
from tests.support.property_examples import MANY_WITH_STORES, examples

NOW = datetime(2031, 3, 4, 12, tzinfo=UTC)
# Ages in days at which something ends: the part of the log that free and pro keep, the part of activity that stays.
AGES = [0, 1, 3, 4, 90, 91, 364, 365]
MODELS = [("gpt-5", "openai"), ("gpt-5", "azure"), ("claude", "anthropic"), ("", "")]
NAMES = [*rollup.SUMS]


def parts_of(one: Entry) -> dict[str, Decimal]:
    """Return what a record adds to each sum: the definition, in words of its own."""

    def amount(*names: str) -> Decimal:
        return sum((Decimal(getattr(one, name) or 0) for name in names), Decimal(0))

    credits = one.used_mode == "credits"
    whole, storage = amount("cost", "data_storage_cost"), amount("data_storage_cost")
    nothing = Decimal(0)
    return {
        "request_count": Decimal(1),
        "input_tokens": amount("prompt_tokens"),
        "output_tokens": amount("completion_tokens"),
        "cached_tokens": amount("cached_tokens"),
        "total_tokens": amount("total_tokens"),
        "error_count": Decimal(one.has_error is True),
        "cache_count": Decimal(one.cached is True),
        "credits_request_count": Decimal(credits),
        "api_keys_request_count": Decimal(not credits),
        "cost": whole,
        "input_cost": amount("input_cost", "cache_write_cost"),
        "output_cost": amount("output_cost"),
        "cached_input_cost": amount("cached_input_cost"),
        "request_cost": amount("request_cost", "web_search_cost"),
        "data_storage_cost": storage,
        "image_input_cost": amount("image_input_cost"),
        "image_output_cost": amount("image_output_cost"),
        "discount_savings": amount("discount_savings"),
        "credits_cost": whole if credits else nothing,
        "api_keys_cost": nothing if credits else whole,
        "credits_data_storage_cost": storage if credits else nothing,
        "api_keys_data_storage_cost": nothing if credits else storage,
    }


def recount(rows: list[Entry], fits: Callable[[Entry], bool]) -> dict[date, dict[Any, dict[str, Decimal]]]:
    """Return the sums by day: of the whole under None, of each model and provider."""
    days: dict[date, dict[Any, dict[str, Decimal]]] = {}
    for one in rows:
        if not fits(one):
            continue
        day = days.setdefault(time_of(one.id).date(), {})
        for group in (None, (one.used_model or one.requested_model, one.used_provider)):
            sums = day.setdefault(group, dict.fromkeys(NAMES, Decimal(0)))
            for name, value in parts_of(one).items():
                sums[name] += value
    return days


# The numbers shown for each model.
SHOWN = ("request_count", "input_tokens", "output_tokens", "total_tokens", "cost")


def told(scope: ActivityScope, window: ActivityWindow) -> dict[date, dict[Any, dict[str, Decimal]]]:
    """Return the numbers that activity shows, in the form of a recount."""
    answer: dict[date, dict[Any, dict[str, Decimal]]] = {}
    for day in find_days(scope, window):
        groups: dict[Any, Any] = {None: day.sums}
        for one in json.loads(day.models, parse_int=str, parse_float=str):
            sums = {name: one[camel(name)] for name in SHOWN}
            groups[one["id"], one["provider"]] = sums
        answer[day.date] = {
            group: {name: Decimal(text) for name, text in sums.items()} for group, sums in groups.items()
        }
    return answer


def of_models(days: dict[date, dict[Any, dict[str, Decimal]]]) -> dict[date, dict[Any, dict[str, Decimal]]]:
    """Return a recount with as many numbers for each model as activity shows for one."""
    return {
        day: {group: sums if group is None else {name: sums[name] for name in SHOWN} for group, sums in groups.items()}
        for day, groups in days.items()
    }


AMOUNTS = st.decimals(min_value=0, max_value=5, places=12)
TOKENS = st.none() | st.integers(0, 10**6)
RECORDS = st.fixed_dictionaries(
    {
        "age": st.sampled_from(AGES),
        "minute": st.sampled_from([0, 1, 719, 720, 1439]),
        "owner": st.integers(0, 3),
        "model": st.sampled_from(MODELS),
        "used_mode": st.sampled_from(["credits", "api-keys"]),
        "cost": st.none() | AMOUNTS,
        "input_cost": AMOUNTS,
        "cache_write_cost": st.none() | AMOUNTS,
        "web_search_cost": st.none() | AMOUNTS,
        "data_storage_cost": st.none() | AMOUNTS,
        "discount_savings": st.none() | AMOUNTS,
        "prompt_tokens": TOKENS,
        "total_tokens": TOKENS,
        "has_error": st.sampled_from([None, False, True]),
        "cached": st.sampled_from([None, False, True]),
        "swept": st.booleans(),
    }
)


class Activity(RuleBasedStateMachine):
    """Rows come early, late, twice and from the sweeper; they expire, are erased, are folded; activity stays right."""

    def __init__(self) -> None:
        super().__init__()
        plans = (Plan.FREE, Plan.PRO)
        organizations = [Organization.objects.create(name=f"on {plan}", plan=plan).id for plan in plans]
        projects = [new_id() for _ in range(3)]
        # Organization, project, key: an organization with two projects, one of them with two keys; another one.
        self.owners = [
            (organizations[0], projects[0], new_id()),
            (organizations[0], projects[0], new_id()),
            (organizations[0], projects[1], new_id()),
            (organizations[1], projects[2], new_id()),
        ]
        self.rows: dict[UUID, Entry] = {}
        self.gone: set[UUID] = set()

    @rule(records=st.lists(RECORDS, min_size=1, max_size=5))
    def settle(self, records: list[dict[str, Any]]) -> None:
        """A batch is written, of any days."""
        entries = [self._entry(dict(record)) for record in records]
        write(*entries)
        self.rows |= {one.id: one for one in entries}

    def _entry(self, record: dict[str, Any]) -> Entry:
        organization_id, project_id, api_key_id = self.owners[record.pop("owner")]
        model, provider = record.pop("model")
        midnight = NOW.replace(hour=0) - timedelta(days=record.pop("age"))
        return entry(
            id=id_at(midnight + timedelta(minutes=record.pop("minute"))),
            organization_id=organization_id,
            project_id=project_id,
            api_key_id=api_key_id,
            used_model=model,
            used_provider=provider,
            **record,
        )

    @precondition(lambda self: set(self.rows) - self.gone)
    @rule(data=st.data(), word=RECORDS, neighbor=RECORDS)
    def speak_again(self, data: st.DataObject, word: dict[str, Any], neighbor: dict[str, Any]) -> None:
        """A record comes again beside a new one; only a worker's own word replaces the sweeper's."""
        first = self.rows[data.draw(st.sampled_from(sorted(set(self.rows) - self.gone)))]
        owner = {name: getattr(first, name) for name in ("organization_id", "project_id", "api_key_id")}
        again, new = replace(self._entry(dict(word)), id=first.id, **owner), self._entry(dict(neighbor))
        write(again, new)
        self.rows[new.id] = new
        if first.swept and not again.swept:
            self.rows[first.id] = again

    @rule(size=st.integers(1, 4))
    def fold(self, size: int) -> None:
        """Notes are folded, in batches of any size; a second time nothing is left to do."""
        before, rollup.BATCH = rollup.BATCH, size
        try:
            rollup.roll_up()
            assert rollup.roll_up() == 0
        finally:
            rollup.BATCH = before

    @rule()
    def fold_and_die(self) -> None:
        """A fold that does not come to its end has folded nothing."""
        before = ActivityDelta.objects.count()
        with transaction.atomic():
            rollup.roll_up()
            transaction.set_rollback(True)
        assert ActivityDelta.objects.count() == before

    @rule()
    def expire(self) -> None:
        """Rows past their age go from the log, and after a year from activity."""
        retention.expire(NOW)
        kept = set(RequestLog.objects.values_list("id", flat=True))
        self.gone |= {identifier for identifier in self.rows if identifier not in kept}

    @rule(index=st.integers(0, 3))
    def erase(self, index: int) -> None:
        """An organization is erased."""
        organization_id = self.owners[index][0]
        hooks.erase(organization_id)
        self.rows = {name: one for name, one in self.rows.items() if one.organization_id != organization_id}

    @invariant()
    def is_a_recount(self) -> None:
        """Compare every scope, and windows that cut some days off."""
        rows = list(self.rows.values())
        everyone = frozenset(owner[0] for owner in self.owners)
        scopes: list[tuple[ActivityScope, Callable[[Entry], bool]]] = [
            (ActivityScope(everyone), lambda one: True),
            (ActivityScope(frozenset({self.owners[0][0]})), lambda one: one.organization_id == self.owners[0][0]),
            (ActivityScope(everyone, self.owners[0][1]), lambda one: one.project_id == self.owners[0][1]),
            (ActivityScope(everyone, *self.owners[1][1:]), lambda one: one.api_key_id == self.owners[1][2]),
        ]
        for window in (
            window_of(NOW, days=365),
            ActivityWindow(NOW.date() - timedelta(days=90), NOW.date() - timedelta(days=1)),
        ):
            for scope, fits in scopes:
                within = [one for one in rows if window.first <= time_of(one.id).date() <= window.last]
                assert told(scope, window) == of_models(recount(within, fits))


@pytest.mark.django_db
def test_activity_is_a_recount_of_the_log() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]  # hypothesis leaves it without
        Activity,
        settings=settings(
            max_examples=examples(12, long=MANY_WITH_STORES),
            stateful_step_count=10,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            # Making a counter-example smaller would take minutes.
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
        ),
    )
