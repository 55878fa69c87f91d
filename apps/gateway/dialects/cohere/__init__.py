"""Cohere's chat, version 2, towards Cohere. Pure functions; no side towards clients."""

from __future__ import annotations

from apps.gateway.dialects.cohere.answer_in import read_events, read_reply
from apps.gateway.dialects.cohere.failures import read_failure
from apps.gateway.dialects.cohere.request_out import path, write_request
from apps.gateway.dialects.cohere.wire import FRAMING, NAME

__all__ = ["FRAMING", "NAME", "path", "read_events", "read_failure", "read_reply", "write_request"]
