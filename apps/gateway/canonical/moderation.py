"""Canonical moderation: the part of a chat that only a request to judge content has, and what it is answered with."""

from __future__ import annotations

from typing import TypedDict

import msgspec


class Judgement(TypedDict):
    """A model's verdict on one input, by its own names of categories."""

    flagged: bool
    categories: dict[str, bool]
    category_scores: dict[str, float]
    # Which kinds of input (`text`, `image`) a score comes from.
    category_applied_input_types: dict[str, list[str]]


class Moderation(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A moderation request: each part of the chat's one message is judged by itself, or `together` as one input."""

    together: bool = False
