"""Does every balance equal the sum of its ledger entries? Asked by a command, and every night.

Reads one snapshot a question, so it may be asked under load. Must never write.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from django.db import connection

from apps.billing.balances import Scope

_QUESTIONS: dict[Scope, str] = {
    "organization": """
        SELECT organization.id, organization.credits, coalesce(entries.total, 0)
        FROM organizations_organization organization
        LEFT JOIN (SELECT organization_id, sum(credits) AS total FROM billing_ledgerentry GROUP BY 1) entries
            ON entries.organization_id = organization.id
        WHERE organization.credits <> coalesce(entries.total, 0) ORDER BY 1
    """,
    "key": """
        SELECT api_key.id, api_key.usage, coalesce(entries.total, 0)
        FROM keys_apikey api_key
        LEFT JOIN (SELECT api_key_id, sum(usage) AS total FROM billing_ledgerentry GROUP BY 1) entries
            ON entries.api_key_id = api_key.id
        WHERE api_key.usage <> coalesce(entries.total, 0) ORDER BY 1
    """,
}


@dataclass(frozen=True, slots=True)
class LedgerMismatch:
    """A balance and the sum that it should be, in USD: an organization's credits or a key's usage."""

    scope: Scope
    id: UUID
    balance: Decimal
    entries: Decimal


def find_mismatches() -> list[LedgerMismatch]:
    """Return every balance that the ledger contradicts."""
    with connection.cursor() as cursor:
        found = []
        for scope, question in _QUESTIONS.items():
            cursor.execute(question)
            found += [LedgerMismatch(scope, *row) for row in cursor.fetchall()]
    return found
