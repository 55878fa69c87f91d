"""Public ids of stored objects: a prefix that tells the kind, and 48 hexadecimal digits, as long as OpenAI's.

The digits are a UUIDv7 and 64 more random bits: sorted by time, and impossible to guess. Pure.
"""

from __future__ import annotations

import re
from typing import Final

from apps.kernel.ids import new_id, random_number

# Texts that may be an id; no object has any other.
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_OWN_ID: Final = re.compile(r"[a-z]+[_-][0-9a-f]{48}")
# By the type of an item: the prefix that OpenAI gives its ids.
_PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "web_search_call": "ws",
    "compaction": "cmp",
}


def new_public_id(prefix: str) -> str:
    """Return a new id."""
    return f"{prefix}_{new_id().hex}{random_number():016x}"


def new_item_id(item_type: str) -> str:
    """Return a new id for an item of this type."""
    return new_public_id(_PREFIXES.get(item_type, "item"))


def is_own_id(text: object) -> bool:
    """Tell whether this can be an id that was made here: no other is looked for in a store."""
    return isinstance(text, str) and _OWN_ID.fullmatch(text) is not None


def is_public_id(text: object) -> bool:
    """Tell whether this can be an id at all."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None
