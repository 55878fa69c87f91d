"""Compaction items: a summary of earlier items, encrypted for the project that asked for it.

A client sends it back as it is, and a model reads it as what was said before. Only the same project can open it.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from apps.kernel.errors import InvalidRequest
from apps.kernel.secrets.encryption import UnreadableSecretError
from apps.responses.encrypted_json import decrypt_json, encrypt_json
from apps.responses.items import Item
from apps.responses.public_ids import new_item_id

TYPE: Final = "compaction"
_PREFIX: Final = "gwc1:"
_PLACE: Final = "compaction"
_INTRODUCTION: Final = "Summary of the conversation so far, which it replaces:\n\n"


def compaction_item(project_id: UUID, summary: str) -> Item:
    """Return the item that stands for a summary."""
    sealed = encrypt_json({"summary": summary}, project_id, _PLACE)
    return {"id": new_item_id(TYPE), "type": TYPE, "encrypted_content": f"{_PREFIX}{sealed}"}


def has_any(items: list[Any]) -> bool:
    """Tell whether there are compaction items that this gateway made."""
    return any(_is_own(item) for item in items)


def opened(project_id: UUID, items: list[Any]) -> list[Any]:
    """Return the items with the summary in the place of each compaction item. Raises InvalidRequest naming one."""
    return [_open(project_id, item, index) if _is_own(item) else item for index, item in enumerate(items)]


def _is_own(item: Any) -> bool:
    """Tell whether an item was made here: a provider's own goes to that provider."""
    if not isinstance(item, dict) or item.get("type") != TYPE:
        return False
    content = item.get("encrypted_content")
    return isinstance(content, str) and content.startswith(_PREFIX)


def _open(project_id: UUID, item: Item, index: int) -> Item:
    try:
        sealed = decrypt_json(item["encrypted_content"].removeprefix(_PREFIX), project_id, _PLACE)
    except UnreadableSecretError:
        param = f"input[{index}].encrypted_content"
        raise InvalidRequest(f"{param} was not made for this project, or was changed", param=param) from None
    text = f"{_INTRODUCTION}{sealed['summary']}"
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
