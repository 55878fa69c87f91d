"""Fact declaration: describes a fact of a data file, and the bounds of its value, where a dialect declares it."""

from __future__ import annotations

from typing import Any

from msgspec import Meta


def fact(description: str, *, default: str | None = None, **bounds: Any) -> Meta:
    """Return what annotates a fact: its description for the documents, bounds on its value (`pattern`, `ge`, `le` …)
    and, where the field's own default does not tell it, what holds while the fact is not stated."""
    return Meta(description=description, extra=None if default is None else {"default": default}, **bounds)
