"""Refused answers: paid answers of a provider that their caller may no longer get.

The key was revoked since, or a rule or the catalog took the provider away. The caller gets the refusal, and pays for
the usage: the line was admitted when it was handed over. The answer's content is not stored.
"""

from __future__ import annotations

import msgspec

from apps.batches.native.parked_lines import NativeRequest
from apps.billing.pricing import at_share, bill_at
from apps.billing.worker_leases import worker_name
from apps.gateway.canonical.events import UsageReported
from apps.gateway.dialects import find_dialect
from apps.gateway.failures import UpstreamFailure
from apps.gateway.settlement import outbox, record
from apps.kernel.errors import ApiError
from apps.kernel.prices import PriceCard
from apps.kernel.usage import Usage
from apps.logs.entry import Entry

_WORDS = "The provider had answered when the request was refused"


def record_refused(answered: NativeRequest, status: int) -> bool:
    """Record and bill an answer that is refused with a status; tell whether there was one to bill."""
    usage = _usage_of(answered)
    if usage is None or not answered.note:
        return False
    entry = msgspec.json.decode(answered.note, type=Entry)
    asked = answered.asked
    usual = msgspec.convert(entry.prices or {}, PriceCard, strict=False)
    card = at_share(usual, asked.price_share, asked.cached_share)
    bill = bill_at(card, used=usage, discount=asked.discount, batch_share=asked.price_share)
    record.set_usage_and_cost(entry, bill)
    record.fail(entry, ApiError(_WORDS, status=status), entry.retention_level)
    outbox.enqueue(worker_name(), record.encode(entry), None)
    return True


def _usage_of(answered: NativeRequest) -> Usage | None:
    """Return what a provider says was used, None where it refused, or says nothing that can be read."""
    dialect = find_dialect(answered.asked.dialect)
    if dialect is None or not 200 <= answered.status < 300:
        return None
    usage = None
    try:
        for event in dialect.read_reply(answered.answer):
            if type(event) is UsageReported:
                usage = event.usage
    except (UpstreamFailure, ApiError, LookupError, TypeError, ValueError, RecursionError):
        return usage
    return usage
