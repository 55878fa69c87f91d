"""Canonical reranking: the part of a chat that only a request to rank documents has, and what it is answered with."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Ranked(NamedTuple):
    """A document's place in the request, from 0, and how relevant it is to the query: the more, the higher."""

    place: int
    score: float


class Reranking(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The form that a ranking is to have; None is "not said".

    The first part of the chat's one message is the query, the others are the documents.
    """

    # How many documents are wanted, the most relevant ones; None for all.
    top_n: int | None = None
    # Tokens of a document that are looked at.
    max_tokens_per_doc: int | None = None
    # False: documents that are too long are refused, not cut.
    truncation: bool | None = None
    return_documents: bool = False
    # Whether the client reads `data`, as Voyage writes it.
    as_data: bool = False
