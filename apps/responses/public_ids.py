"""Public ids of stored objects, and the refusals of ids, worded as OpenAI's API words them. Pure.

An id is a prefix that tells the kind, and 48 hexadecimal digits, as long as OpenAI's: a UUIDv7 and 64 more random bits,
sorted by time and impossible to guess. Another project's objects look like unknown ones.
"""

from __future__ import annotations

import re
from typing import Final

from apps.kernel.errors import InvalidRequest, NotFound
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


def no_response(response_id: str) -> NotFound:
    """Return the refusal of a response that is not there, or not the caller's."""
    return NotFound(f"Response with id '{_shown(response_id)}' not found.")


def no_previous_response(response_id: str) -> InvalidRequest:
    """Return the refusal to go on from a response that is not there, or not the caller's."""
    return InvalidRequest(
        f"Previous response with id '{_shown(response_id)}' not found.",
        param="previous_response_id",
        code="previous_response_not_found",
    )


def no_conversation(conversation_id: str, param: str | None = None) -> NotFound:
    """Return the refusal of a conversation that is not there, or not the caller's."""
    return NotFound(f"Conversation with id '{_shown(conversation_id)}' not found.", param=param)


def no_item(item_id: str, param: str | None = None) -> NotFound:
    """Return the refusal of an item that is not there, or not the caller's."""
    return NotFound(
        f"Item with id '{_shown(item_id)}' not found. Items are not persisted when `store` is set to false. Try again "
        "with `store` set to true, or remove this item from your input.",
        param=param,
    )


def no_conversation_item(item_id: str) -> NotFound:
    """Return the refusal of an item that its conversation has not."""
    return NotFound(f"Conversation item with id '{_shown(item_id)}' not found.")


def nothing_is_kept(param: str, what: str) -> InvalidRequest:
    """Return the refusal of what needs content to be kept, in an organization whose retention keeps none."""
    return InvalidRequest(
        f"{what} cannot be used for this organization due to Zero Data Retention: its retention level keeps no "
        "content. An owner may set it to `retain`.",
        param=param,
        code="zero_data_retention",
    )


def _shown(identifier: str) -> str:
    """Return an id as it may be shown: what a client wrote may be anything."""
    return identifier if len(identifier) <= 128 else f"{identifier[:125]}..."
