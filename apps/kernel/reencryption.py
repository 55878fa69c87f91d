"""Re-encryption of secrets that rows hold, with the newest encryption key, so that older keys can be taken away.

Knows rows and a field of theirs. Must never know whose secret it is, nor keep one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from apps.kernel.encryption import UnreadableSecretError


@dataclass(frozen=True, slots=True)
class Rotated:
    """How many secrets were encrypted anew, and the ids of the rows whose secrets no key opens."""

    count: int
    unreadable: list[str]


def reencrypt_rows(rows: QuerySet[Any], field: str, reencrypt: Callable[[bytes], bytes]) -> Rotated:
    """Encrypt a field of every row anew, each row in a transaction of its own: nobody waits for all of them.

    `reencrypt` raises UnreadableSecretError for what no key opens; such a row stays as it is.
    """
    count, unreadable = 0, list[str]()
    for identifier in rows.order_by("id").values_list("id", flat=True):
        with transaction.atomic():
            row = rows.select_for_update(no_key=True).filter(pk=identifier).first()
            if row is None:
                continue
            try:
                setattr(row, field, reencrypt(bytes(getattr(row, field))))
            except UnreadableSecretError:
                unreadable.append(str(identifier))
                continue
            row.save(update_fields=[field])
            count += 1
    return Rotated(count, unreadable)
