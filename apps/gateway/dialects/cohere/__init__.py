"""Cohere Chat v2: the provider side of the dialect; it has no client side. Pure functions."""

from __future__ import annotations

from apps.gateway.dialects.cohere.provider.failures import read_failure
from apps.gateway.dialects.cohere.provider.flavor import Flavor as Facts
from apps.gateway.dialects.cohere.provider.read_answer import read_events, read_reply
from apps.gateway.dialects.cohere.provider.write_request import path, write_request
from apps.gateway.dialects.cohere.shared.wire import FRAMING, NAME

__all__ = ["FRAMING", "NAME", "Facts", "path", "read_events", "read_failure", "read_reply", "write_request"]
