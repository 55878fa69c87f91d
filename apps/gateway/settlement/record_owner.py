"""Owner of a record: which organization it is of, read from the record itself, and so which shard gets it.

For records without a reservation, which would name it: from the spool, sent again, or let in during an outage.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from apps.kernel.store_keys import SHARD_COUNT, shard_of


class _Owned(msgspec.Struct):
    """The fields read from a record."""

    organization_id: UUID


_decode = msgspec.json.Decoder(_Owned).decode


def shard_of_record(record: bytes | str) -> int:
    """Return the shard of a record's organization; the first for one that cannot be read, which the settler puts
    aside."""
    if SHARD_COUNT == 1:
        return 0
    try:
        return shard_of(_decode(record).organization_id)
    except (msgspec.MsgspecError, UnicodeError):
        return 0
