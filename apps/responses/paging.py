"""Paging of items as OpenAI's lists do it: `limit`, `order`, `after` and `include`, and the list object. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from apps.kernel.errors import InvalidRequest
from apps.responses.items import Item, listed

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
