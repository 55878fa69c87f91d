"""Buckets (S3 and compatible services): an object of gzipped JSON lines for each batch. Pure.

A repeated batch has the same key, and so replaces its object.
"""

from __future__ import annotations

import gzip
from datetime import datetime
from hashlib import sha256
from urllib.parse import quote

from apps.keys.aws_signature import STORAGE, Place, Signable, signature
from apps.log_sinks.credentials import BucketKeys
from apps.log_sinks.sink_request import Destination, SinkBatch, SinkRequest
from apps.logs.serializers import encode, entry_of


def key_of(prefix: str, batch: SinkBatch) -> str:
    """Return the object's key: the day on which the batch was queued, then the sink and the batch's number."""
    return f"{prefix}{batch.day:%Y/%m/%d}/{batch.name}.jsonl.gz"


def request_of(to: Destination, credentials: BucketKeys, batch: SinkBatch, now: datetime) -> SinkRequest:
    """Return the request that puts the object, signed at `now` (UTC)."""
    lines = b"".join(encode(entry_of(row)) + b"\n" for row in batch.rows)
    # No timestamp, so that the same rows give the same bytes.
    body = gzip.compress(lines, compresslevel=6, mtime=0)
    key = quote(key_of(to.options.get("prefix", ""), batch), safe="/-_.~")
    url = f"{to.url.rstrip('/')}/{to.options['bucket']}/{key}"
    headers = {
        "Content-Type": "application/gzip",
        "X-Amz-Content-SHA256": sha256(body).hexdigest(),
        "X-Amz-Date": f"{now:%Y%m%dT%H%M%SZ}",
    }
    place = Place(STORAGE, to.options["region"])
    signed = signature(
        Signable("PUT", url, headers, body), place, credentials.access_key_id, credentials.secret_access_key
    )
    return SinkRequest("PUT", url, {**headers, "Authorization": signed}, body)
