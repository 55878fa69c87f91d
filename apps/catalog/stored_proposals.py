"""Stored proposals: rows of proposals that wait for a decision, and applied ones as accepted changes."""

from __future__ import annotations

from collections.abc import Mapping, Set
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from apps.catalog.accepted_changes import AcceptedChange
from apps.catalog.models import CatalogProposal
from apps.catalog.proposals import ListComparison, Proposal

_WAITING = CatalogProposal.State.WAITING


def read_accepted() -> list[AcceptedChange]:
    """Return the applied proposals, oldest decision first."""
    rows = CatalogProposal.objects.filter(state=CatalogProposal.State.APPLIED).order_by("decided_at", "id")
    return [
        AcceptedChange(
            provider=row.provider,
            model=row.model,
            seen=row.seen_at.astimezone(UTC).date(),
            entry=_decode(row.entry["offer"]),
            family=row.entry.get("family", ""),
            model_entry=row.entry.get("model", {}),
        )
        for row in rows
    ]


def store(
    comparison: ListComparison, now: datetime, *, unread: Set[str] | None = None, revives: bool = False
) -> list[CatalogProposal]:
    """Store the proposals, and return their rows in order. It needs a transaction.

    Unless it `revives` them, a proposal that was dismissed is not stored again until the lists state something else. A
    waiting row that the comparison does not have goes, unless one of its sources is `unread`; all stay if that is None.
    """
    waiting = {_key(row): row for row in CatalogProposal.objects.select_for_update().filter(state=_WAITING)}
    dismissed: dict[tuple[str, str, str], list[Any]] = {}
    for row in CatalogProposal.objects.filter(state=CatalogProposal.State.DISMISSED):
        dismissed.setdefault(_key(row), []).append(row.entry)
    stored = []
    for proposal in comparison.proposals:
        columns = columns_of(proposal)
        key = proposal.provider, proposal.model, proposal.kind
        if not revives and columns["entry"] in dismissed.get(key, ()):
            continue
        row = (waiting.pop(key) if key in waiting else None) or CatalogProposal(
            provider=proposal.provider, model=proposal.model, kind=proposal.kind
        )
        for name, value in columns.items():
            setattr(row, name, value)
        row.seen_at = now
        row.save()
        stored.append(row)
    gone = [] if unread is None else [row.pk for row in waiting.values() if unread.isdisjoint(row.sources)]
    CatalogProposal.objects.filter(pk__in=gone, state=_WAITING).delete()
    return stored


def columns_of(proposal: Proposal) -> dict[str, Any]:
    """Return the columns of a proposal's row that a comparison states."""
    entry: dict[str, Any] = {"offer": _encode(proposal.entry)}
    if proposal.family:
        entry |= {"family": proposal.family, "model": proposal.model_entry}
    return {
        "changes": [list(change) for change in proposal.changes],
        "entry": entry,
        "reasons": list(proposal.reasons),
        "disputed": proposal.disputed,
        "sources": list(proposal.sources),
    }


def _key(row: CatalogProposal) -> tuple[str, str, str]:
    return row.provider, row.model, row.kind


def _encode(value: Any) -> Any:
    """Return a value as JSON."""
    if isinstance(value, Mapping):
        return {name: _encode(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_encode(one) for one in value]
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    return value.isoformat() if isinstance(value, date) else value


def _decode(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry as a data file has it: prices are decimals, days are dates."""
    found = dict(entry)
    if "prices" in found:
        found["prices"] = {name: Decimal(price) for name, price in found["prices"].items()}
    if "tiers" in found:
        found["tiers"] = [
            {name: price if name == "above_input_tokens" else Decimal(price) for name, price in tier.items()}
            for tier in found["tiers"]
        ]
    if "deactivated" in found:
        found["deactivated"] = date.fromisoformat(found["deactivated"])
    return found
