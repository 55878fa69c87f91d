"""State of a running product's stores when no work is left: log, ledger, balances, holds, reconciliation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from tests.proofs.invariants import Movement
from tests.stack.product import Product

_BOOKS = """
import json, time
from datetime import timedelta
from pathlib import Path
from django.conf import settings
from django.db import connection
from django.utils import timezone
from apps.gateway.models import Reconciliation
from apps.gateway.settlement.reconcile import reconcile
from apps.kernel.valkey.redis import client
from gateway_project.celery import app

def left():
    store = client()
    found = {{name: int(store.hget(name, "held") or 0) for name in store.keys("*balance:*")}}
    found |= {{name: store.hlen(name) for name in store.keys("*notes:*")}}
    found |= {{name: store.zcard(name) for name in store.keys("*flight:*")}}
    streams = "outbox", "{{*}}:outbox", "outbox:broken", "{{*}}:outbox:broken"
    found |= {{name: store.xlen(name) for pattern in streams for name in store.keys(pattern)}}
    found |= {{path.name: 1 for path in Path(settings.GATEWAY_HOME, "spool").glob("*")}}
    return {{name: amount for name, amount in found.items() if amount}}

def rows(question):
    with connection.cursor() as cursor:
        cursor.execute(question)
        return [[value if value is None else str(value) for value in row] for row in cursor.fetchall()]

deadline = time.monotonic() + {patience}
while (found := left()) and time.monotonic() < deadline:
    time.sleep(0.3)
books = {{"left": found}}
if not found:
    before = timezone.now()
    app.send_task("gateway.reconcile")
    resend = time.monotonic() + 15
    books["log"] = rows(
        "SELECT request_id, id, cost, data_storage_cost, used_mode, unified_finish_reason, swept, api_key_id, "
        "organization_id FROM request_log"
    )
    books["ledger"] = rows(
        "SELECT kind, reference, credits, usage, organization_id, api_key_id FROM billing_ledgerentry"
    )
    books["epochs"] = rows("SELECT count(*) FROM billing_ledgerepoch")[0][0]
    books["usage"] = rows("SELECT id, usage FROM keys_apikey")
    books["credits"] = rows("SELECT credits FROM organizations_organization WHERE id = '{organization}'")[0][0]
    # As the nights after today and yesterday would see it.
    books["differences"] = {{
        kind: count
        for day in (0, 1)
        for kind, count in reconcile(timezone.now() + timedelta(days=day)).counts.items()
        if count
    }}
    done = Reconciliation.objects.filter(started_at__gte=before, finished_at__isnull=False)
    # The one sent above may have been with a worker that had just been killed: the broker keeps it for it for an hour.
    until = time.monotonic() + 60
    while done.count() < 3 and time.monotonic() < until:
        time.sleep(0.2)
        if time.monotonic() > resend:
            app.send_task("gateway.reconcile")
            resend += 15
    books["reconciled by a task"] = done.count() - 2
print("BOOKS" + json.dumps(books))
"""


class Row(NamedTuple):
    """A log row. Amounts are USD."""

    request_id: str
    id: str
    cost: Decimal
    storage: Decimal
    mode: str
    finish: str
    swept: bool
    key: str
    organization: str


@dataclass
class Books:
    """The state of the stores when no work is left; `left` is the work that remained when patience ended."""

    left: dict[str, int]
    rows: list[Row]
    # By kind and the row's id: credits and usage.
    ledger: dict[tuple[str, str], tuple[Decimal, Decimal]]
    movements: list[Movement]
    credits: Decimal
    usage: dict[str, Decimal]
    differences: dict[str, int]
    tasks_done: int
    # Epochs of the ledger that began.
    epochs: int


def books_of(product: Product, patience: float = 45.0) -> Books:
    """Return the books as soon as nothing waits and nothing is held, or patience ends."""
    script = _BOOKS.format(patience=patience, organization=product.demo["organizationId"])
    told = json.loads(product.manage("shell", "-c", script, patience=patience + 150).partition("BOOKS")[2])
    return Books(
        left=told["left"],
        rows=[
            Row(request_id, row_id, _usd(cost), _usd(storage), mode, finish, swept == "True", key, organization)
            for request_id, row_id, cost, storage, mode, finish, swept, key, organization in told.get("log", ())
        ],
        ledger={(kind, row): (_usd(credits), _usd(usage)) for kind, row, credits, usage, *_ in told.get("ledger", ())},
        movements=[
            Movement(kind, reference, organization, key, _usd(credits), _usd(usage))
            for kind, reference, credits, usage, organization, key in told.get("ledger", ())
        ],
        credits=_usd(told.get("credits")),
        usage={key: _usd(usage) for key, usage in told.get("usage", ())},
        differences=told.get("differences", {}),
        tasks_done=told.get("reconciled by a task", 0),
        epochs=int(told.get("epochs", 0)),
    )


def _usd(text: str | None) -> Decimal:
    return Decimal(text or 0)
