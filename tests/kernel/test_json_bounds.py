"""Bounds on JSON, compared with what a parser makes of the same bytes."""

from __future__ import annotations

import json
import sys
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apps.kernel import json_bounds
from apps.kernel.json_bounds import Bounds, OutOfBounds, check, decode_text_within, decode_within

NONE = Bounds(sys.maxsize, sys.maxsize, sys.maxsize, sys.maxsize)
MIB = 1024 * 1024

# Marks, quotes and backslashes in strings, and names that look like what stands behind them.
_TEXTS = st.text(alphabet='ab":,[]{}\\/ \n\u00e9\U0001f600', max_size=12)
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_TEXTS, inner, max_size=5),
    max_leaves=30,
)


def values_in(value: Any) -> int:
    """Return how many values a parsed one holds, as the bound counts them."""
    return 1 + _entries_in(value)


def _entries_in(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    inner = list(value.values()) if isinstance(value, dict) else value
    return max(len(inner), 1) + sum(map(_entries_in, inner))


def depth_of(value: Any) -> int:
    """Return how many arrays and objects lie within one another."""
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(depth_of, value.values() if isinstance(value, dict) else value), default=0)


def refusal_of(data: bytes, bounds: Bounds) -> str | None:
    """Return which bound is passed."""
    try:
        check(data, bounds)
    except OutOfBounds as passed:
        return passed.bound
    return None


def longest_name(value: Any, ascii_only: bool) -> int:
    """Return the bytes of the longest name as it is written."""
    if isinstance(value, list):
        return max((longest_name(one, ascii_only) for one in value), default=0)
    if not isinstance(value, dict):
        return 0
    own = (len(json.dumps(name, ensure_ascii=ascii_only).encode()) - 2 for name in value)
    return max([*own, *(longest_name(one, ascii_only) for one in value.values())], default=0)


@given(value=_VALUES, ascii_only=st.booleans(), indent=st.sampled_from([None, 1]), piece=st.integers(1, 40))
@example(value={"a": "\\"}, ascii_only=False, indent=None, piece=1)
@example(value={'\\"' * 9: [[], {}]}, ascii_only=False, indent=None, piece=3)
def test_the_scan_counts_what_the_parser_makes(value: Any, ascii_only: bool, indent: int | None, piece: int) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    values, depth, name = values_in(value), depth_of(value), longest_name(value, ascii_only)
    # Pieces of a few bytes end anywhere.
    with patch.object(json_bounds, "_PIECE", piece):
        # On the bound, all is let through; one below it, nothing is.
        assert refusal_of(data, NONE._replace(values=values, depth=depth, name=max(name, 0))) is None
        if values > 1:
            assert refusal_of(data, NONE._replace(values=values - 1, depth=depth)) == "values"
        if depth:
            assert refusal_of(data, NONE._replace(depth=depth - 1)) == "depth"
        if name:
            assert refusal_of(data, NONE._replace(name=name - 1)) == "name"


@given(digits=st.integers(1, 300), before=st.integers(0, 80), piece=st.integers(1, 80))
def test_a_number_is_as_long_as_it_is_written(digits: int, before: int, piece: int) -> None:
    data = b'{"%b":[1,"%b",%b, 2]}' % (b"a" * before, b"9" * 400, b"1" * digits)
    # Pieces of a few bytes end anywhere.
    with patch.object(json_bounds, "_PIECE", piece):
        assert refusal_of(data, NONE._replace(digits=digits)) is None
        assert refusal_of(data, NONE._replace(digits=digits - 1)) == "digits"


@given(data=st.binary(max_size=60) | st.text(alphabet='[]{}",:\\ 1a', max_size=60).map(str.encode))
def test_whatever_the_parser_takes_within_bounds_passes(data: bytes) -> None:
    bounds = Bounds(values=6, depth=3, name=4, digits=6)
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return
    if refusal_of(data, bounds) is None:
        assert values_in(value) <= 6
        assert depth_of(value) <= 3


@pytest.mark.parametrize(
    ("data", "bound", "words"),
    [
        (b'{"a":[' + b"{}," * 400_000 + b"{}]}", "values", "holds more than 1000 values"),
        (b"[" * 500, "depth", "is nested too deeply: more than 32 levels"),
        (b'{"' + b"n" * 3 * MIB + b'":1}', "name", "holds a name longer than 100 bytes"),
        (b'{"' + b'\\"' * 400_000 + b'" : 1}', "name", "holds a name longer than 100 bytes"),
        (b'{"a":1.' + b"1" * 3 * MIB + b"}", "digits", "holds a number longer than 50 characters"),
        (b'{"a":"' + b"\\n" * MIB + b'"}', "text", "holds more than 1048576 bytes of text"),
        (b'{"a":"' + "\U0001f600".encode() * MIB + b'"}', "text", "holds more than 1048576 bytes of text"),
    ],
    ids=["values", "depth", "name", "name of escapes", "digits", "escapes", "emoji"],
)
def test_what_passes_a_bound_is_refused_before_it_is_parsed(data: bytes, bound: str, words: str) -> None:
    with pytest.raises(OutOfBounds) as refused:
        decode_within(data, Bounds(values=1000, depth=32, name=100, digits=50, text=MIB))
    assert (refused.value.bound, str(refused.value)) == (bound, words)


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":"' + b"AAAA" * MIB + b'"}',
        b'{"a":"' + (b"A" * 76 + b"\\r\\n") * 40_000 + b'"}',
        b'{"a":"' + (b"A" * 63 + b"\\/") * 40_000 + b'"}',
    ],
    ids=["as it is", "in lines", "with escaped slashes"],
)
def test_base64_is_no_text(data: bytes) -> None:
    assert decode_within(data, NONE._replace(text=MIB)) == json.loads(data)


def test_json_within_a_text_is_bounded_too() -> None:
    bounds = Bounds(values=100, depth=8, name=100, digits=100)
    assert decode_text_within('{"a":[1,2]}', bounds) == {"a": [1, 2]}
    with pytest.raises(OutOfBounds, match="holds more than 100 values"):
        decode_text_within("[" + "1," * 100 + "1]", bounds)
