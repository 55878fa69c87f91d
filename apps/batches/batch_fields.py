"""Fields of `POST /v1/batches`, validated by name. Pure.

Source: `openai.types.BatchCreateParams`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apps.batches.file_fields import MAX_LIFETIME, MIN_LIFETIME
from apps.kernel.errors import InvalidRequest
from apps.responses.conversation_fields import read_metadata, read_object

_WINDOW = "24h"
_KNOWN = frozenset({"input_file_id", "endpoint", "completion_window", "metadata", "output_expires_after"})


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A batch as a client asks for it; `output_lifetime` is in seconds, None where nothing is said."""

    input_file_id: str
    endpoint: str
    metadata: dict[str, str]
    output_lifetime: int | None


def read_batch(body: bytes, endpoints: Sequence[str]) -> NewBatch:
    """Return the batch that a body asks for, at one of `endpoints`. Raises InvalidRequest naming the field."""
    fields = read_object(body)
    for name in fields:
        if name not in _KNOWN:
            raise InvalidRequest(f"{name[:64]} is no field of a batch", param=name[:64])
    input_file_id, endpoint = fields.get("input_file_id"), fields.get("endpoint")
    if not isinstance(input_file_id, str) or not input_file_id:
        raise InvalidRequest("input_file_id must be the id of a file", param="input_file_id")
    if endpoint not in endpoints:
        raise InvalidRequest(f"endpoint must be one of {', '.join(endpoints)}", param="endpoint")
    if fields.get("completion_window") != _WINDOW:
        raise InvalidRequest(f"completion_window must be {_WINDOW}", param="completion_window")
    lifetime = _read_lifetime(fields.get("output_expires_after"))
    return NewBatch(input_file_id, str(endpoint), read_metadata(fields), lifetime)


def _read_lifetime(value: Any) -> int | None:
    name = "output_expires_after"
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidRequest(f"{name} must be an object", param=name)
    if value.get("anchor") != "created_at":
        raise InvalidRequest(f"{name}.anchor must be created_at", param=f"{name}.anchor")
    seconds = value.get("seconds")
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not MIN_LIFETIME <= seconds <= MAX_LIFETIME:
        raise InvalidRequest(
            f"{name}.seconds must be a whole number from {MIN_LIFETIME} to {MAX_LIFETIME}", param=f"{name}.seconds"
        )
    return seconds
