"""Cohere's chat, version 2, towards Cohere. Pure functions; no side towards clients."""

from __future__ import annotations

from apps.gateway.dialects.cohere.provider.failures import read_failure
from apps.gateway.dialects.cohere.provider.read_answer import read_events, read_reply
from apps.gateway.dialects.cohere.provider.write_request import path, write_request
from apps.gateway.dialects.cohere.shared.wire import FRAMING, NAME

__all__ = ["FRAMING", "NAME", "path", "read_events", "read_failure", "read_reply", "write_request"]
