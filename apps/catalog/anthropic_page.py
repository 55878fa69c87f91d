"""Anthropic's list of models: a page of the listing, by cursor, for clients that send `anthropic-version`. Pure.

The format is https://docs.anthropic.com/en/api/models-list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from apps.kernel.errors import InvalidRequest

_MAX_LIMIT = 1_000
_DIGITS = 4


class ModelPage(NamedTuple):
    """The requested page: its size, and the model before or after it. Without a limit, all models."""

    limit: int | None
    after_id: str | None
    before_id: str | None

    def of(self, models: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the page. Raises InvalidRequest for a cursor that is not a listed model."""
        start, end = 0, len(models)
        if self.after_id is not None:
            start = _place_of("after_id", self.after_id, models) + 1
        if self.before_id is not None:
            end = _place_of("before_id", self.before_id, models)
        limit = len(models) if self.limit is None else self.limit
        if self.before_id is not None:
            first = max(start, end - limit)
            shown, has_more = models[first:end], first > start
        else:
            shown, has_more = models[start : start + limit], start + limit < end
        return {
            "data": [model_of(entry) for entry in shown],
            "has_more": has_more,
            "first_id": shown[0]["id"] if shown else None,
            "last_id": shown[-1]["id"] if shown else None,
        }


def model_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return Anthropic's model object."""
    return {
        "type": "model",
        "id": entry["id"],
        "display_name": entry["display_name"],
        "created_at": entry["created_at"],
        "max_input_tokens": entry["context_length"] or None,
        "max_tokens": entry["top_provider"]["max_completion_tokens"],
        "lifecycle": "active" if entry["deprecated_at"] is None else "deprecated",
    }


def read_page(query: Mapping[str, str]) -> ModelPage:
    """Return the page in a query. Raises InvalidRequest naming the parameter."""
    after_id, before_id = query.get("after_id"), query.get("before_id")
    if after_id is not None and before_id is not None:
        raise InvalidRequest("after_id and before_id cannot be given together", param="before_id")
    stated = query.get("limit")
    if stated is None:
        return ModelPage(None, after_id, before_id)
    is_number = stated.isascii() and stated.isdecimal() and len(stated) <= _DIGITS
    if not (is_number and 1 <= int(stated) <= _MAX_LIMIT):
        raise InvalidRequest(f"limit must be a whole number from 1 to {_MAX_LIMIT}", param="limit")
    return ModelPage(int(stated), after_id, before_id)


def _place_of(name: str, cursor: str, models: Sequence[dict[str, Any]]) -> int:
    for place, entry in enumerate(models):
        if entry["id"] == cursor:
            return place
    raise InvalidRequest(f"{name} must be the id of a listed model", param=name)
