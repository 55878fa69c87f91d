"""Answers of providers that make no sense, for the law that none is too strange to be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st


def strange_answers(cases_of: Path) -> st.SearchStrategy[Any]:
    """Draw answers with the names in them that the cases in a folder have, and anything under these names."""
    cases = [json.loads(case.read_text()) for case in cases_of.glob("*/reply.json")]
    names = st.sampled_from(sorted({name for case in cases for name in names_in(case)}))
    leaves = st.none() | st.booleans() | st.integers(-5, 2**40) | st.floats(-9, 1e300) | st.text(max_size=4)
    anything = st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=4), max_leaves=12
    )
    message = st.dictionaries(names, anything, max_size=5)
    around = {"index": anything, "finish_reason": anything, "delta": message, "message": message}
    choices = st.lists(st.fixed_dictionaries({}, optional=around) | anything, max_size=3)
    rest = {"id": anything, "created": anything, "usage": anything}
    return anything | st.fixed_dictionaries({"choices": choices}, optional=rest)


def names_in(value: Any) -> Iterator[str]:
    """Yield the names of all fields in a JSON value."""
    if isinstance(value, dict):
        yield from value
        for inner in value.values():
            yield from names_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from names_in(inner)
