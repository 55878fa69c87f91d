"""Fields of the conversations API: metadata and items, validated and bounded. Pure.

Bounds: OpenAI's API (16 pairs of metadata, 20 items at a time). The reader of requests to
`/v1/responses` validates an item's content, for models will get it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from apps.kernel.errors import InvalidRequest
from apps.responses.items import Item, is_reference, with_ids
from apps.responses.public_ids import is_public_id

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
