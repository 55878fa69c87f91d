"""Cohere Chat v2: names and constants on the wire.

Knows the wire. Must never know a provider or a model by name.
"""

from __future__ import annotations

import secrets
from typing import Any, Final, TypeAlias

import msgspec

from apps.gateway.canonical.events import FinishReason
from apps.kernel.errors import InvalidRequest

Record: TypeAlias = dict[str, Any]

NAME: Final = "cohere"
FRAMING: Final = "sse"

# How the plan of a model that is about to call tools is marked on its way through clients: it has a field of its own.
PLAN_FORMAT: Final = "cohere-tool-plan"

# Words for why a model stopped. A word not listed is taken for `stop`.
FINISH_REASONS: Final[dict[str, FinishReason]] = {
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_calls",
    "ERROR_TOXIC": "content_filter",
}
# Words that say that the provider broke down, and the status that it means.
FAILURE_WORDS: Final = {"ERROR": 502, "TIMEOUT": 504}

encode = msgspec.json.Encoder().encode


def new_id(prefix: str) -> str:
    """Return an id for what was given none: the prefix and 24 characters."""
    return prefix + secrets.token_hex(12)


def without_none(**values: Any) -> Record:
    """Return the fields that are stated: null is never sent."""
    return {name: value for name, value in values.items() if value is not None}


def refused(message: str, param: str) -> InvalidRequest:
    """Return the refusal of what cannot be said and would change what the client gets."""
    return InvalidRequest(message, code="unsupported_feature", param=param)
