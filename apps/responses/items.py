"""Items of the Responses API as they are stored and listed: each an object with a type and an id. Pure.

The dialect checks their content before a model reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from apps.kernel.errors import InvalidRequest
from apps.responses.public_ids import is_public_id, new_item_id

Item = dict[str, Any]

REFERENCE: Final = "item_reference"
INCLUDE_REASONING: Final = "reasoning.encrypted_content"


def is_reference(item: object) -> bool:
    """Tell whether an item stands for one that is stored. The type may be left out, then it has an id and no more."""
    if not isinstance(item, dict):
        return False
    return item.get("type") == REFERENCE or (item.get("type") is None and set(item) == {"id"})


def with_ids(items: Iterable[Any]) -> list[Item]:
    """Return the items as they are stored: each with its type, an id and, if it is a message, a list of parts.

    Values that are no objects are left out: a reader has refused them by then.
    """
    return [_stored_form(item) for item in items if isinstance(item, dict)]


def listed(items: Iterable[Item], include: Collection[str]) -> list[Item]:
    """Return the items as a client sees them: encrypted reasoning only if `include` asks for it."""
    if INCLUDE_REASONING in include:
        return list(items)
    return [
        {name: value for name, value in item.items() if name != "encrypted_content"}
        if item.get("type") == "reasoning"
        else item
        for item in items
    ]


def ids_of(items: Iterable[Item]) -> list[str]:
    """Return the ids of items, each once, in order."""
    return list(dict.fromkeys(item["id"] for item in items if is_public_id(item.get("id"))))


def referred_ids(items: Iterable[Any]) -> list[str]:
    """Return the ids that references among items name. Raises InvalidRequest for an impossible id."""
    found = []
    for index, item in enumerate(items):
        if is_reference(item):
            if not is_public_id(item.get("id")):
                raise InvalidRequest(f"input[{index}].id must be the id of an item", param=f"input[{index}].id")
            found.append(item["id"])
    return found


def _stored_form(item: Item) -> Item:
    kind = item.get("type") or "message"
    form: Item = {**item, "type": kind}
    if not is_public_id(item.get("id")):
        form["id"] = new_item_id(kind)
    if kind == "message":
        form.setdefault("status", "completed")
        content = item.get("content")
        if isinstance(content, str):
            if item.get("role") == "assistant":
                form["content"] = [{"type": "output_text", "text": content, "annotations": []}]
            else:
                form["content"] = [{"type": "input_text", "text": content}]
    return form
