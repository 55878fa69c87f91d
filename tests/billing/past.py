"""Requests that were settled on a day of the past, for the nightly reconciliation to look at."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from apps.billing import ledger, reconciliation
from apps.gateway.models import Difference, Reconciliation
from apps.gateway.settlement import outbox
from apps.gateway.settlement.outbox import encode
from apps.keys.models import ApiKey
from apps.logs.entry import Entry
from tests.logs.entries import entry, id_at
from tests.support.cast import World, make_key
from tests.support.upstream import settle_all

NOW = datetime(2026, 3, 15, 4, 10, tzinfo=UTC)
YESTERDAY = datetime(2026, 3, 14, 12, tzinfo=UTC)
NOTHING = dict.fromkeys(Difference.Kind.values, 0)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other task settles in the meantime, so no copy needs time to catch up."""
    monkeypatch.setattr(reconciliation, "PATIENCE", 0)


@pytest.fixture
def key(world: World) -> ApiKey:
    """A key of Acme's, which has 10 USD."""
    outbox.prepare()
    ledger.grant(world.acme.id, Decimal(10), "")
    return make_key(world.olivia, world.project).key


def settled(key: ApiKey, moment: datetime = YESTERDAY, cost: str = "0.25", **fields: Any) -> Entry:
    """Let a request of a moment be settled; return its record. Its ledger entry was made at that moment as well."""
    made = entry(key, id=id_at(moment), cost=Decimal(cost), input_cost=Decimal(cost), **fields)
    outbox.push("worker", encode(made))
    assert settle_all() == 1
    redate(made.id, moment)
    return made


def redate(reference: UUID, moment: datetime) -> None:
    """Make a request's ledger entries some of the past, which nothing but a test can do."""
    for kind in ("usage", "storage"):
        statement = "UPDATE billing_ledgerentry SET id = %s, created_at = %s WHERE reference = %s AND kind = %s"
        unguarded(statement, id_at(moment), moment, reference, kind)


def unguarded(statement: str, *values: Any) -> None:
    """Change the ledger as only an operator with bad intentions could."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE billing_ledgerentry DISABLE TRIGGER ledger_append_only")
        cursor.execute(statement, values)
        cursor.execute("ALTER TABLE billing_ledgerentry ENABLE TRIGGER ledger_append_only")


def found(run: Reconciliation) -> list[tuple[str, UUID | None, str, str]]:
    """Return what a run kept."""
    rows = Difference.objects.filter(reconciliation=run).order_by("id")
    return list(rows.values_list("kind", "subject_id", "expected", "found"))
