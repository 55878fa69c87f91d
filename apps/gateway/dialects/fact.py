"""Fact declaration: how a flavor annotates what a provider's data file may state, so that it is described once."""

from __future__ import annotations

from typing import Any

from msgspec import Meta


def fact(description: str, *, default: str | None = None, **bounds: Any) -> Meta:
    """Return what annotates a fact: its description for the documents, bounds on its value (`pattern`, `ge`, `le` …)
    and, where the field's own default does not tell it, what holds while the fact is not stated."""
    return Meta(description=description, extra=None if default is None else {"default": default}, **bounds)
