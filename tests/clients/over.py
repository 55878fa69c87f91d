"""Formats of providers that an agent's task runs over: some in every run of the tests, all when asked for."""

from __future__ import annotations

import pytest
from _pytest.mark.structures import ParameterSet

from tests.clients.gateway import EVERY_FORMAT

CONTENT = "hi\nGrüße\n"
"""The content of the file that agents are asked to write."""

# Whose thinking, calls and results look most different.
_FORMATS = frozenset({"openai", "anthropic", "google", "responses", "bedrock", "cohere"})


def over(*usual: str) -> list[ParameterSet]:
    """Return a provider of each format: of those that are not `usual` only when all agents are asked for."""
    return [
        pytest.param(behind, id=behind.format, marks=[] if behind.format in usual else [pytest.mark.agents])
        for behind in EVERY_FORMAT
        if behind.format in _FORMATS
    ]
