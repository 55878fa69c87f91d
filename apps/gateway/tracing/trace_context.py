"""Trace context: W3C's `traceparent` read and written, new ids, and whether a request is sampled. Pure but for chance.

A client's header is hostile input: an invalid one counts as none.
"""

from __future__ import annotations

import random
import re
from typing import NamedTuple

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01
# An id is no secret; looked up once.
_random_bits = random.getrandbits
# Characters of a `tracestate` that are passed on.
_MAX_STATE_LENGTH = 512


class TraceContext(NamedTuple):
    """The trace that a client's request belongs to: ids of 16 and 8 bytes, whether it is recorded there, its state."""

    trace_id: bytes
    span_id: bytes
    sampled: bool
    state: str = ""


def read_traceparent(header: str | None, state: str | None = None) -> TraceContext | None:
    """Return what a client's `traceparent` (and `tracestate`) say; None for none, or one that is not well formed."""
    found = _FORM.fullmatch(header.strip()) if header else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    kept = state if state and len(state) <= _MAX_STATE_LENGTH and state.isascii() and state.isprintable() else ""
    return TraceContext(bytes.fromhex(trace_id), bytes.fromhex(span_id), bool(int(flags, 16) & _SAMPLED), kept)


def write_traceparent(trace_id: bytes, span_id: bytes) -> str:
    """Return the header for a call made within a span that is recorded."""
    return f"00-{trace_id.hex()}-{span_id.hex()}-01"


def new_trace_id() -> bytes:
    """Return the id of a new trace; never zero."""
    return (_random_bits(127) + 1).to_bytes(16, "big")


def new_span_ids() -> bytes:
    """Return what the ids of a request's spans begin with, all but their last byte; never zero."""
    return (_random_bits(55) + 1).to_bytes(7, "big")


def is_sampled(parent: TraceContext | None, share: float) -> bool:
    """Return whether a request is recorded: as its parent is, else by chance, `share` of them."""
    if parent is not None:
        return parent.sampled
    return share >= 1 or random.random() < share  # noqa: S311 - a sample, not a secret
