"""The ledger: append-only, the only writer of credits and usage; entries and balances change together.

It defines the order in which rows are locked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import NamedTuple
from uuid import UUID

import msgspec
from django.db import connection, transaction
from django.db.models import Count, Exists, F, Min, OuterRef, Sum

from apps.billing import balances
from apps.billing.balances import Balance, Scope
from apps.billing.models import LedgerEntry, Transaction
from apps.kernel.ids import new_id
from apps.kernel.money import LARGEST, ZERO, exact, storable
from apps.kernel.postgres.rows import write_array
from apps.organizations.models import Organization

# Table and column of each scope's balance; a version column belongs to it.
_COLUMNS: dict[Scope, tuple[str, str]] = {
    "organization": ("organizations_organization", "credits"),
    "key": ("keys_apikey", "usage"),
    "limit": ("limits_limitcounter", "used"),
}
# The owner of a balance, which determines the shard of its copy.
_OWNER: dict[Scope, str] = {
    "organization": "organizations_organization.id",
    "key": "(SELECT organization_id FROM organizations_project WHERE id = keys_apikey.project_id)",
    "limit": "organization_id",
}
# Columns that only counters of limits have: a whole number as 1e-9 each, and the end of the window.
_COUNTER = "CASE WHEN is_money THEN used ELSE used * 0.000000001 END", ", extract(epoch FROM ends_at)::bigint"
# Read in one statement with the balance, so that both belong together.
_EPOCH = "(SELECT coalesce(max(number), 0) FROM billing_ledgerepoch)"

_TOTALS = """
    SELECT
        coalesce(sum(entry.credits) FILTER (WHERE kind IN ('top_up', 'gift', 'refund', 'referral')), 0),
        -coalesce(sum(entry.credits) FILTER (WHERE kind IN ('usage', 'storage')), 0),
        -coalesce(sum(entry.credits) FILTER (WHERE kind IN ('hold', 'hold_release')), 0),
        coalesce(sum(entry.credits) FILTER (WHERE organization.id IS NULL), 0),
        (SELECT coalesce(sum(credits), 0) FROM organizations_organization)
    FROM billing_ledgerentry entry LEFT JOIN organizations_organization organization
        ON organization.id = entry.organization_id
"""


class Charge(msgspec.Struct, frozen=True):
    """The movement of a request, in USD: the organization's credits (0 or less) and its key's usage (0 or more).

    `reference` is the request's id; a request is charged once, however often this is repeated. `storage` is the
    additional charge to the credits for storing its data (0 or more), as a separate entry. `is_held` tells that a hold
    with the same reference may exist (`hold`), which the charge replaces.
    """

    organization_id: UUID
    api_key_id: UUID
    reference: UUID
    credits: Decimal
    usage: Decimal
    storage: Decimal = ZERO
    is_held: bool = False


class _Movement(NamedTuple):
    """A new ledger entry."""

    kind: str
    reference: UUID
    organization_id: UUID
    api_key_id: UUID | None
    credits: Decimal
    usage: Decimal


def charge(charges: Sequence[Charge]) -> list[Balance]:
    """Charge requests inside the caller's transaction; return the changed balances, to be published after commit.

    If the organization or key is gone, the entry is written anyway. Raises DatabaseError.
    """
    held = [one.reference for one in charges if one.is_held]
    return _move([*(movement for one in charges for movement in _movements_of(one)), *_releases_of(held)])


def hold(
    reference: UUID, organization_id: UUID, api_key_id: UUID, *, credits: Decimal, usage: Decimal
) -> list[Balance]:
    """Hold the maximum cost of a request inside the caller's transaction; once per reference.

    For work that outlives processes, such as batches; other holds are in Valkey. Returns the changed balances. Raises
    DatabaseError.
    """
    amounts = -storable(credits), storable(usage)
    return _move([_Movement(LedgerEntry.Kind.HOLD, reference, organization_id, api_key_id, *amounts)])


def give_back(references: Sequence[UUID]) -> list[Balance]:
    """Release the holds of these references, once each, inside the caller's transaction; return the changed balances.
    Raises DatabaseError."""
    return _move(_releases_of(references))


def is_charged(reference: UUID) -> bool:
    """Return whether a request has been charged. Raises DatabaseError."""
    return LedgerEntry.objects.filter(kind=LedgerEntry.Kind.USAGE, reference=reference).exists()


def find_forgotten_holds(first: UUID, before: datetime) -> list[UUID]:
    """Return references, from `first` on, that are still held since before a moment; references contain their time."""
    released = LedgerEntry.objects.filter(kind=LedgerEntry.Kind.HOLD_RELEASE, reference=OuterRef("reference"))
    held = LedgerEntry.objects.filter(kind=LedgerEntry.Kind.HOLD, reference__gte=first, created_at__lt=before)
    return list(held.exclude(Exists(released)).values_list("reference", flat=True))


class LedgerTotals(NamedTuple):
    """Sums of credits over all entries in USD, and the credits of all organizations, of one moment.

    `received` are payments and gifts less refunds; `used` are charges, and `batches` holds for providers' batch APIs
    (both 0 or more). `deleted` is the part of entries whose organization has no row any more.
    """

    received: Decimal
    used: Decimal
    batches: Decimal
    deleted: Decimal
    credits: Decimal


def read_totals() -> LedgerTotals:
    """Return the totals, in one statement, which reads every entry. Raises DatabaseError."""
    with connection.cursor() as cursor:
        cursor.execute(_TOTALS)
        return LedgerTotals(*cursor.fetchone())


def open_holds(first: UUID) -> tuple[Decimal, int, datetime | None]:
    """Return the sum in USD, the number and the oldest of holds that are not released, from reference `first` on.

    Raises DatabaseError.
    """
    released = LedgerEntry.objects.filter(kind=LedgerEntry.Kind.HOLD_RELEASE, reference=OuterRef("reference"))
    held = LedgerEntry.objects.filter(kind=LedgerEntry.Kind.HOLD, reference__gte=first).exclude(Exists(released))
    sums = held.aggregate(amount=Sum("credits"), count=Count("id"), oldest=Min("created_at"))
    return -(sums["amount"] or ZERO), sums["count"], sums["oldest"]


def _releases_of(references: Sequence[UUID]) -> list[_Movement]:
    if not references:
        return []
    held = LedgerEntry.objects.filter(kind=LedgerEntry.Kind.HOLD, reference__in=references)
    return [
        _Movement(
            LedgerEntry.Kind.HOLD_RELEASE, one.reference, one.organization_id, one.api_key_id, -one.credits, -one.usage
        )
        for one in held
    ]


def _movements_of(one: Charge) -> Iterator[_Movement]:
    """Yield the movements of a request's answer and of its storage."""
    ids = (one.reference, one.organization_id, one.api_key_id)
    yield _Movement(LedgerEntry.Kind.USAGE, *ids, storable(one.credits), storable(one.usage))
    yield _Movement(LedgerEntry.Kind.STORAGE, *ids, -storable(one.storage), ZERO)


def grant(organization_id: UUID, amount: Decimal, description: str) -> Transaction:
    """Grant an organization credits; return the completed gift.

    Raises ValueError when the amount is not positive or is finer than 1e-12 USD, Organization.DoesNotExist.
    """
    if not (amount.is_finite() and ZERO < amount <= LARGEST and amount == exact(amount)):
        raise ValueError("The amount must be a positive number of USD with at most 12 digits after the point")
    with transaction.atomic():
        gift = Transaction.objects.create(
            organization=Organization.objects.get(id=organization_id),
            type=Transaction.Type.CREDIT_GIFT,
            status=Transaction.Status.COMPLETED,
            amount=amount,
            credit_amount=amount,
            description=description,
        )
        changed = _move([_Movement(LedgerEntry.Kind.GIFT, gift.id, organization_id, None, amount, ZERO)])
        transaction.on_commit(partial(balances.publish, changed))
    return gift


def credit(row: Transaction) -> None:
    """Apply a completed top-up (credits rise) or refund (credits fall), once, inside the caller's transaction.

    The copy of the balance is published on commit. A refund may make the balance negative.
    """
    if row.credit_amount is None:
        raise ValueError("The transaction has no credit amount")
    kind = LedgerEntry.Kind.REFUND if row.type == Transaction.Type.CREDIT_REFUND else LedgerEntry.Kind.TOP_UP
    changed = _move([_Movement(kind, row.id, row.organization_id, None, row.credit_amount, ZERO)])
    transaction.on_commit(partial(balances.publish, changed))


def reward(organization_id: UUID, amount: Decimal, reference: UUID) -> bool:
    """Pay an organization's referral earnings as credits and in `referral_earnings`, once per reference.

    Returns whether it was new. Raises DatabaseError.
    """
    with transaction.atomic():
        changed = _move([_Movement(LedgerEntry.Kind.REFERRAL, reference, organization_id, None, amount, ZERO)])
        if changed:
            Organization.objects.filter(id=organization_id).update(referral_earnings=F("referral_earnings") + amount)
        transaction.on_commit(partial(balances.publish, changed))
    return bool(changed)


def balances_of(scope: Scope, ids: Iterable[UUID]) -> list[Balance]:
    """Return the current balances that exist. Raises DatabaseError."""
    table, column = _COLUMNS[scope]
    value, more = _COUNTER if scope == "limit" else (column, "")
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT id, {value}, {column}_version, {_EPOCH}, {_OWNER[scope]}{more} FROM {table} "  # noqa: S608 - ours
            "WHERE id = ANY(%s)",
            [list(ids)],
        )
        return [Balance(scope, *row) for row in cursor.fetchall()]


def moved_last(count: int) -> list[Balance]:
    """Return the current balances of the latest entries (at most `count`). Raises DatabaseError."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT organization_id, api_key_id FROM billing_ledgerentry ORDER BY id DESC LIMIT %s",
            [count],
        )
        rows = cursor.fetchall()
    organizations, keys = {organization for organization, _ in rows}, {key for _, key in rows if key}
    return balances_of("organization", organizations) + balances_of("key", keys)


def _move(movements: Iterable[_Movement]) -> list[Balance]:
    """Append the new, non-zero movements and add them to the balances; return the changed balances.

    Rows are locked in one order (entries, organizations, keys; each by id), which prevents deadlocks.
    """
    credits: defaultdict[UUID, Decimal] = defaultdict(Decimal)
    usage: defaultdict[UUID, Decimal] = defaultdict(Decimal)
    for organization_id, api_key_id, more_credits, more_usage in _append(movements):
        if more_credits:
            credits[organization_id] += more_credits
        if more_usage and api_key_id:
            usage[api_key_id] += more_usage
    return _add("organization", credits) + _add("key", usage)


def _append(movements: Iterable[_Movement]) -> list[tuple[UUID, UUID | None, Decimal, Decimal]]:
    """Write ledger entries; return organization, key, credits and usage of the new ones."""
    moving = [movement for movement in movements if movement.credits or movement.usage]
    if not moving:
        return []
    moving.sort(key=lambda movement: (movement.kind, movement.reference))
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO billing_ledgerentry
                (id, kind, reference, organization_id, api_key_id, credits, usage, created_at)
            SELECT *, now() FROM unnest(
                %s::uuid[], %s::text[], %s::uuid[], %s::uuid[], %s::uuid[], %s::numeric[], %s::numeric[]
            )
            ON CONFLICT (kind, reference) DO NOTHING RETURNING organization_id, api_key_id, credits, usage
            """,
            [write_array([new_id() for _ in moving]), *map(write_array, zip(*moving, strict=True))],
        )
        return list(cursor.fetchall())


def _add(scope: Scope, amounts: Mapping[UUID, Decimal]) -> list[Balance]:
    """Add to the balances that still exist; return the new balances."""
    if not amounts:
        return []
    table, column = _COLUMNS[scope]
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT FROM {table} WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE",
            [sorted(amounts)],
        )
        cursor.execute(
            # Clamp to the column's range: one absurd charge must not block all others.
            f"""
            UPDATE {table} SET
                {column} = least(greatest({column} + moved.amount, -%s::numeric), %s::numeric),
                {column}_version = {column}_version + 1
            FROM unnest(%s::uuid[], %s::numeric[]) AS moved (id, amount)
            WHERE {table}.id = moved.id RETURNING {table}.id, {column}, {column}_version, {_EPOCH}, {_OWNER[scope]}
            """,  # noqa: S608 - names are ours
            [LARGEST, LARGEST, list(amounts), list(amounts.values())],
        )
        return [Balance(scope, *row) for row in cursor.fetchall()]
