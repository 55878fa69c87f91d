"""Actions on the catalog: read the configured price lists, apply and dismiss proposals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from apps.catalog import files, metrics, stored_proposals
from apps.catalog.load import Loaded, load
from apps.catalog.models import CatalogProposal, PriceListReading
from apps.catalog.price_lists import InvalidList, PriceList, fetch_list
from apps.catalog.proposals import DEACTIVATION, NEW_MODEL, PRICES, ListComparison, Proposal, compare
from apps.kernel.errors import InvalidRequest
from apps.kernel.postgres.advisory_lock import AdvisoryLock, lock_in_transaction

log = structlog.get_logger(__name__)

# Author of proposals that the gateway applied by itself.
GATEWAY: Final = "catalog.propose"
# Notes that are stored of one reading, and characters of each.
MAX_NOTES: Final = 200
MAX_NOTE: Final = 500


def compare_now(lists: Sequence[PriceList]) -> ListComparison:
    """Return what the lists say that the catalog's files and the applied proposals do not. Raises InvalidFiles."""
    own = settings.CATALOG_DIR
    catalog = files.read_leniently(own=own, accepted=stored_proposals.read_accepted())
    return compare(catalog, lists, datetime.now(UTC).date(), files.stated_prices(own))


def read_lists() -> tuple[int, int]:
    """Read the configured lists and store their proposals; return how many wait and how many were applied.

    Proposals of the kinds in CATALOG_APPLY that need no person are applied. Each list's result is stored; one that
    cannot be read changes nothing. Raises InvalidFiles.
    """
    now = timezone.now()
    lists, problems = _fetch_all(settings.CATALOG_PRICE_LISTS)
    with transaction.atomic():
        # A proposal that an operator applies meanwhile must not be stored as waiting again.
        lock_in_transaction(AdvisoryLock.LOAD_CATALOG)
        comparison = compare_now(list(lists.values())) if lists else ListComparison([], [])
        unread = {source.partition("=")[0] for source in problems} | set(comparison.refused)
        rows = stored_proposals.store(comparison, now, unread=unread)
        _store_readings(lists, problems, comparison, now)
    found = {(one.provider, one.model, one.kind): one for one in comparison.proposals}
    chosen = [row for row in rows if is_allowed(found[row.provider, row.model, row.kind], settings.CATALOG_APPLY)]
    applied = _apply_each(chosen)
    return len(rows) - applied, applied


def is_allowed(proposal: Proposal, kinds: Iterable[str]) -> bool:
    """Return whether the gateway may apply a proposal by itself, given the kinds in CATALOG_APPLY."""
    allowed = {"falling_prices": proposal.kind == PRICES and proposal.falls}
    allowed |= {"deactivations": proposal.kind == DEACTIVATION, "new_models": proposal.kind == NEW_MODEL}
    return not proposal.reasons and not proposal.disputed and any(allowed[kind] for kind in kinds)


def apply_proposals(rows: Sequence[CatalogProposal], decided_by: str) -> Loaded:
    """Apply waiting proposals, all or none; their prices are in force from now on.

    Raises InvalidRequest if one does not wait any more or has changed since it was read, is disputed, or would make the
    catalog invalid.
    """
    with transaction.atomic():
        lock_in_transaction(AdvisoryLock.LOAD_CATALOG)
        seen = {row.pk: row.entry for row in rows}
        waiting = CatalogProposal.objects.select_for_update().filter(pk__in=seen, state=CatalogProposal.State.WAITING)
        found = list(waiting.order_by("id"))
        if len(found) != len(seen):
            raise InvalidRequest("This proposal does not wait for a decision any more")
        if any(row.entry != seen[row.pk] for row in found):
            raise InvalidRequest("The proposal has changed; check it again")
        if disputed := next((row for row in found if row.disputed), None):
            raise InvalidRequest(f"The sources disagree on {disputed}; configure only the source that you believe")
        for row in found:
            _decide(row, CatalogProposal.State.APPLIED, decided_by)
        authors = {(row.provider, row.model): f"{decided_by}: {', '.join(row.sources)}" for row in found}
        return _load_offers(authors)


def dismiss_proposal(row: CatalogProposal, decided_by: str) -> Loaded | None:
    """Dismiss a proposal; one that was applied no longer holds from now on. Return the load that this needed.

    Raises InvalidRequest if it is dismissed already.
    """
    with transaction.atomic():
        lock_in_transaction(AdvisoryLock.LOAD_CATALOG)
        found = CatalogProposal.objects.select_for_update().get(pk=row.pk)
        if found.state == CatalogProposal.State.DISMISSED:
            raise InvalidRequest("This proposal is dismissed already")
        was_applied = found.state == CatalogProposal.State.APPLIED
        _decide(found, CatalogProposal.State.DISMISSED, decided_by)
        return _load_offers({(row.provider, row.model): f"{decided_by}: dismissed"}) if was_applied else None


def _decide(row: CatalogProposal, state: str, decided_by: str) -> None:
    row.state, row.decided_at, row.decided_by = state, timezone.now(), decided_by[:254]
    row.save(update_fields=["state", "decided_at", "decided_by"])
    transaction.on_commit(metrics.note_state, robust=True)


def _load_offers(authors: dict[tuple[str, str], str]) -> Loaded:
    try:
        return load(author=authors, only=set(authors))
    except files.InvalidFiles as error:
        raise InvalidRequest(f"The catalog would be invalid: {str(error)[:300]}") from error


def _apply_each(rows: Sequence[CatalogProposal]) -> int:
    """Apply rows together, or one by one if one of them is refused; return how many were applied."""
    if not rows:
        return 0
    try:
        apply_proposals(rows, GATEWAY)
    except InvalidRequest as error:
        if len(rows) == 1:
            log.warning("catalog.proposal_refused", proposal=str(rows[0]), reason=error.message)
            return 0
        return sum(_apply_each([row]) for row in rows)
    return len(rows)


def _fetch_all(sources: Iterable[str]) -> tuple[dict[str, PriceList], dict[str, str]]:
    """Return the lists and the problems of those that cannot be read, by source."""
    lists: dict[str, PriceList] = {}
    problems: dict[str, str] = {}
    for source in sources:
        kind, _, place = source.partition("=")
        try:
            lists[source] = fetch_list(kind, place)
        except InvalidList as error:
            problems[source] = str(error)
            log.warning("catalog.price_list_refused", source=source, reason=str(error))
    return lists, problems


def _store_readings(
    lists: dict[str, PriceList], problems: dict[str, str], comparison: ListComparison, now: datetime
) -> None:
    for source in (*lists, *problems):
        read = lists.get(source)
        notes = [_text(note) for note in comparison.notes if read is not None and note.startswith(f"{read.source}:")]
        is_refused = read is not None and read.source in comparison.refused
        problem = _text(problems.get(source, notes[0] if is_refused else ""))
        columns: dict[str, Any] = {"read_at": now, "problem": problem, "notes": notes[:MAX_NOTES]}
        columns |= {} if problem else {"succeeded_at": now, "entries": len(read.entries) if read else 0}
        PriceListReading.objects.update_or_create(source=source[:500], defaults=columns)
    PriceListReading.objects.exclude(source__in=[source[:500] for source in settings.CATALOG_PRICE_LISTS]).delete()


def _text(said: str) -> str:
    """Return a text with words of a list's as PostgreSQL can store it."""
    return said.replace("\0", "").encode("utf-8", "replace").decode()[:MAX_NOTE]
