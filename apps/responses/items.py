"""Items of the Responses API as they are stored and listed: each an object with a type and an id. Pure.

Fields of the conversations API and lists with `limit`, `order`, `after` and `include` are validated and bounded here.
The dialect checks the content of items before a model reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

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


MAX_PAGE: Final = 100
_USUAL: Final = 20
# Maximum number of names in `include` that are read.
_MAX_INCLUDED: Final = 20


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Which items of a list a client asks for."""

    limit: int
    order: Literal["asc", "desc"]
    # The id of the item before the first.
    after: str | None
    include: frozenset[str]


def read_page(query: Mapping[str, Sequence[str]]) -> ItemPage:
    """Return the page that a query asks for. Raises InvalidRequest naming the parameter."""
    order = last_of(query, "order") or "desc"
    if order not in ("asc", "desc"):
        raise InvalidRequest("order must be asc or desc", param="order")
    return ItemPage(
        limit=_read_limit(last_of(query, "limit")),
        order="asc" if order == "asc" else "desc",
        after=last_of(query, "after"),
        include=read_include(query),
    )


def read_include(query: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Return what a query asks to be shown besides, `include` or `include[]`; unknown names mean nothing."""
    return frozenset([*query.get("include", ()), *query.get("include[]", ())][:_MAX_INCLUDED])


def last_of(query: Mapping[str, Sequence[str]], name: str) -> str | None:
    """Return a parameter's value, the last if there are several, None for none or an empty one."""
    values = query.get(name)
    return (values[-1] or None) if values else None


def page_of(items: Sequence[Item], page: ItemPage) -> dict[str, Any]:
    """Return the list object for items that are all at hand, oldest first. Raises InvalidRequest naming `after`."""
    ordered = items if page.order == "asc" else items[::-1]
    start = 0
    if page.after is not None:
        start = next((index for index, item in enumerate(ordered, 1) if item["id"] == page.after), 0)
        if not start:
            raise no_cursor()
    chosen = ordered[start : start + page.limit]
    return list_object(listed(chosen, page.include), has_more=start + page.limit < len(ordered))


def list_object(items: Sequence[Item], *, has_more: bool) -> dict[str, Any]:
    """Return OpenAI's list of items."""
    return {
        "object": "list",
        "data": list(items),
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": has_more,
    }


def no_cursor() -> InvalidRequest:
    """Return the refusal of an `after` that is no item of the list."""
    return InvalidRequest("after must be the id of an item of this list", param="after")


def _read_limit(text: str | None) -> int:
    if text is None:
        return _USUAL
    if not (text.isascii() and text.isdecimal() and len(text) <= 3 and 1 <= int(text) <= MAX_PAGE):
        raise InvalidRequest(f"limit must be a whole number from 1 to {MAX_PAGE}", param="limit")
    return int(text)


MAX_ITEMS: Final = 20
_MAX_PAIRS, _MAX_NAME_LENGTH, _MAX_VALUE_LENGTH = 16, 64, 512


def read_object(body: bytes) -> dict[str, Any]:
    """Return the body, a JSON object; none is an empty one. Raises InvalidRequest."""
    try:
        value = msgspec.json.decode(body) if body.strip() else {}
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise InvalidRequest("The request body is not valid JSON", code="invalid_json") from None
    if not isinstance(value, dict):
        raise InvalidRequest("The request body must be a JSON object", code="invalid_json")
    return value


def read_metadata(body: dict[str, Any]) -> dict[str, str]:
    """Return the metadata, none for null. Raises InvalidRequest naming the pair."""
    metadata = body.get("metadata")
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise InvalidRequest("metadata must be an object of strings", param="metadata")
    if len(metadata) > _MAX_PAIRS:
        raise InvalidRequest(f"metadata may have {_MAX_PAIRS} pairs at most", param="metadata")
    for name, value in metadata.items():
        if len(name) > _MAX_NAME_LENGTH:
            raise InvalidRequest(f"A name in metadata may have {_MAX_NAME_LENGTH} characters", param="metadata")
        if not isinstance(value, str) or len(value) > _MAX_VALUE_LENGTH:
            param = f"metadata.{name}"
            raise InvalidRequest(f"{param} must be a string of at most {_MAX_VALUE_LENGTH} characters", param=param)
    return metadata


def read_items(body: dict[str, Any], *, required: bool) -> list[Item]:
    """Return the items in their stored form. Raises InvalidRequest naming the item."""
    items = body.get("items")
    if items is None and not required:
        return []
    if not isinstance(items, list) or (required and not items):
        raise InvalidRequest("items must be an array of items", param="items")
    if len(items) > MAX_ITEMS:
        raise InvalidRequest(f"items may have {MAX_ITEMS} at a time", param="items")
    for index, item in enumerate(items):
        _check(item, f"items[{index}]")
    stored = with_ids(items)
    ids = [item["id"] for item in stored]
    for index, item_id in enumerate(ids):
        if item_id in ids[:index]:
            raise InvalidRequest(f"items[{index}].id is that of another item", param=f"items[{index}].id")
    return stored


def _check(item: Any, param: str) -> None:
    if not isinstance(item, dict):
        raise InvalidRequest(f"{param} must be an object", param=param)
    if is_reference(item):
        raise InvalidRequest(f"{param} is a reference; a conversation holds items themselves", param=param)
    kind = item.get("type", "message")
    if not isinstance(kind, str) or not kind:
        raise InvalidRequest(f"{param}.type must be the type of an item", param=f"{param}.type")
    if item.get("id") is not None and not is_public_id(item["id"]):
        raise InvalidRequest(f"{param}.id must be an id", param=f"{param}.id")
