"""A request record when it is settled: its JSON, and what it moves. The settler reads this alone of `record`, and so
loads nothing of how requests are answered."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from apps.billing.ledger import Charge
from apps.kernel.money import ZERO
from apps.logs.entry import Entry
from apps.organizations.models import Mode

ENCODER: Final = msgspec.json.Encoder(uuid_format="canonical")


def encode(entry: Entry) -> bytes:
    """Return the record as JSON."""
    return ENCODER.encode(entry)


def charge_of(entry: Entry) -> Charge:
    """Return what a record moves: always the key's usage, the credits only when the service's credentials were used."""
    cost = entry.cost or ZERO
    return Charge(
        organization_id=entry.organization_id,
        api_key_id=entry.api_key_id,
        reference=entry.id,
        credits=-cost if entry.used_mode == Mode.CREDITS else ZERO,
        usage=cost,
        storage=entry.data_storage_cost or ZERO,
        is_held=_is_of_batch(entry.prices),
    )


def _is_of_batch(prices: Any) -> bool:
    """Return whether a provider's batch API answered; prices are a bill, or what JSON made of one."""
    share = prices.get("batch_share") if isinstance(prices, dict) else getattr(prices, "batch_share", None)
    return share is not None
