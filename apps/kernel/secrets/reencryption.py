"""Re-encryption of secrets in rows with the newest encryption key, so that older keys can be removed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from apps.kernel.secrets.encryption import UnreadableSecretError


@dataclass(frozen=True, slots=True)
class Rotated:
    """The number of re-encrypted secrets, and the ids of rows whose secrets no key decrypts."""

    count: int
    unreadable: list[str]


def reencrypt_rows(rows: QuerySet[Any], field: str, reencrypt: Callable[[bytes], bytes]) -> Rotated:
    """Re-encrypt a field of every row, each row in its own transaction, so that locks are short.

    `reencrypt` raises UnreadableSecretError if no key decrypts a secret; such a row stays unchanged.
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
