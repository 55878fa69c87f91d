"""Strict YAML: values that are read, and refusals with their places."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway_project.config_as_code.yaml_file import MAX_BYTES, MAX_DEPTH, ConfigError, read_yaml, write_yaml

BOMB = b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: on\nb: no\nc: 12:30\nd: 2027-01-01\ne: 010\nf: 0x1F", ["on", "no", "12:30", "2027-01-01", "010", "0x1F"]),
        ("a: true\nb: null\nc: 5\nd: -1.5\ne: 1e3\nf: ~", [True, None, 5, -1.5, 1000.0, None]),
        ("a: 'true'\nb: \"5\"\nc: |\n  5\nd: ''\ne: []\nf: {}", ["true", "5", "5\n", "", [], {}]),
    ],
)
def test_words_are_read_as_in_json(text: str, value: list[object]) -> None:
    assert list(read_yaml(text.encode()).values()) == value


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (BOMB, "a: Anchors and aliases"),
        (b"a:\n  - *b\n", "a[0]: Anchors and aliases"),
        (b"a: {b: !!python/object/apply:os.system ['true']}", "a.b: Tags (!) are not supported"),
        (b"a: !!int '5'", "a: Tags (!) are not supported"),
        (b"a: 1\nb: {c: 1, c: 2}", "b.c: Given twice"),
        (b"a: {<<: {b: 1}, <<: {b: 2}}", "a.<<: Given twice"),
        (b"? [a]\n: 1", "A name must be text"),
        (b"a: 1\n---\nb: 2", "more than one document"),
        (b"a: [1, 2", "The file is not YAML: line 2"),
        (b"a: 1\n\tb: 2", "The file is not YAML: line 2"),
        (b"a: \xff", "The file is not UTF-8"),
        (b"a: \x07", "The file is not YAML"),
        (b"[" * 100_000, f"Nested deeper than {MAX_DEPTH} levels"),
        (b"a: " + b"x" * 10_000_000, f"larger than {MAX_BYTES // 1024 // 1024} MB"),
        (b"- 1\n" * 300_000, "[199999]: The file has more than 200000 values"),
    ],
    ids=lambda value: value[:24] if isinstance(value, bytes) else None,
)
def test_hostile_files_are_refused_with_a_place(data: bytes, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_yaml(data)
    assert words in str(refused.value)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.text(st.characters(codec="utf-8"), max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("aB0_-", min_size=1), inner, max_size=3),
    max_leaves=12,
)


@example("\x85")
@example("one\u2028two\u2029")
@given(values)
def test_what_is_written_is_read_the_same(value: object) -> None:
    assert read_yaml(write_yaml({"value": value}).encode()) == {"value": value}


@pytest.mark.parametrize(
    "text", ["1e3", "0x1F", "on", "~", "", "12:30", "2027-01-01", "- a", "a: b", "${NAME}", "\u202ex"]
)
def test_texts_that_look_like_other_things_stay_texts(text: str) -> None:
    assert read_yaml(write_yaml([text]).encode()) == [text]


def test_json_is_read_too() -> None:
    value = {"version": 1, "projects": [{"name": "A \u00e9 \n b", "keys": []}], "n": 1.5}
    assert read_yaml(json.dumps(value).encode()) == value
