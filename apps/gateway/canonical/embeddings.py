"""Canonical embedding options: the part of a chat that only a request for embeddings has."""

from __future__ import annotations

from typing import Literal

import msgspec

# The purpose of the vectors: some models turn a question and its answering text into vectors in different ways.
InputType = Literal[
    "query",
    "document",
    "similarity",
    "classification",
    "clustering",
    "question_answering",
    "fact_verification",
    "code_query",
]


class Embedding(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The form that vectors are to have; None is "not said" or "as the model likes".

    The texts to embed are the parts of the chat's one message, unless they came as tokens.
    """

    # Each input as the model's own tokens, in place of texts.
    tokens: list[list[int]] | None = None
    # Numbers in each vector.
    dimensions: int | None = None
    # Whether the client takes base64 of float32, little-endian, in place of numbers.
    base64: bool = False
    input_type: InputType | None = None
    title: str | None = None
