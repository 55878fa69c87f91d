"""Personal data: exactly the right characters, labelled rightly, however they are written; and nothing that looks
alike.

The bars hold for the labelled texts, which the rule was improved on: they keep what was reached, and say less
about texts that nobody has seen.
"""

from __future__ import annotations

import sys

import pytest

from tests.guardrails.corpus.making_pii import personal
from tests.guardrails.measuring import found, labelled, measured, rows_of

RULE = "pii_detection"
PRECISION, RECALL = 0.98, 0.95


def test_labelled_texts_reach_the_bars(capsys: pytest.CaptureFixture[str]) -> None:
    figures = measured(RULE, labelled(RULE))
    with capsys.disabled():
        sys.stdout.write(f"\n{RULE}, spans of the corpus: {figures}\n")
    assert (figures.precision >= PRECISION, figures.recall >= RECALL) == (True, True), figures.failures


def test_made_texts_reach_the_bars(capsys: pytest.CaptureFixture[str]) -> None:
    figures = measured(RULE, [(made.text, list(made.found)) for made in personal(20)])
    with capsys.disabled():
        sys.stdout.write(f"\n{RULE}, spans of made texts: {figures}\n")
    assert (figures.precision >= PRECISION, figures.recall >= RECALL) == (True, True), figures.failures


def test_half_of_the_texts_only_look_alike() -> None:
    rows = rows_of(RULE)
    assert len(rows) >= 200
    assert sum(not row["attack"] for row in rows) * 2 >= len(rows)
    assert len({row["text"] for row in rows}) == len(rows)
    assert all(text in row["text"] for row in rows for _, text in row.get("found", []))


def test_every_item_of_a_text_is_found_with_its_borders() -> None:
    text = "Ann (ann@posteo.net, +1 415 555 2671) pays with 4111-1111-1111-1111."
    assert found(RULE, text) == [
        ("EMAIL", "ann@posteo.net"),
        ("PHONE", "+1 415 555 2671"),
        ("CREDIT_CARD", "4111-1111-1111-1111"),
    ]


def test_a_long_list_is_found_whole() -> None:
    """The first thousand one by one, and what there is more as one."""
    text = "someone@posteo.net, " * 9000
    *each, rest = found(RULE, text)
    assert each == [("EMAIL", "someone@posteo.net")] * 1000
    assert rest == ("EMAIL", text[1000 * 20 : -2])


def test_a_list_behind_one_name_is_found_whole() -> None:
    numbers = ["659048309", "329422649", "678548961"]
    text = f"BSN: {numbers[0]}, {numbers[1]} and {numbers[2]}, order 123456782 no"
    assert found(RULE, text) == [("NATIONAL_ID", number) for number in numbers]


@pytest.mark.parametrize(
    ("written", "characters"),
    [
        ("card ４１１１１１１１１１１１１１１１ ok", "４１１１１１１１１１１１１１１１"),
        ("card 4111\u200b1111\u200b1111\u200b1111 ok", "4111\u200b1111\u200b1111\u200b1111"),
        ("café 4111\u00a01111\u00a01111\u00a01111 ok", "4111\u00a01111\u00a01111\u00a01111"),
        ("\ufeffcard 4111\u20111111\u20111111\u20111111", "4111\u20111111\u20111111\u20111111"),
        ("بطاقة ٤١١١١١١١١١١١١١١١", "٤١١١١١١١١١١١١١١١"),
    ],
)
def test_writing_it_otherwise_hides_nothing(written: str, characters: str) -> None:
    assert found(RULE, written) == [("CREDIT_CARD", characters)]


@pytest.mark.parametrize(
    "text",
    [
        "a4111111111111111",
        "4111111111111111b",
        "0.4111111111111111",
        "4111111111111111.25",
        "14111111111111111",
        "deadbeef4155552671",
        "x-415-555-26711",
        "1.2.3.4.5",
        "v84.17.32.9",
        "84.17.32.9-beta",
        "256.1.1.1",
    ],
)
def test_part_of_something_longer_is_nothing(text: str) -> None:
    assert found(RULE, text) == []


def test_two_readings_of_the_same_characters_are_one_finding() -> None:
    assert found(RULE, "phone 4111111111111111") == [("CREDIT_CARD", "4111111111111111")]


@pytest.mark.parametrize("text", ["", " ", "\ud800", "\ud800 ann@posteo.net", "\x00"])
def test_odd_texts_are_read(text: str) -> None:
    assert found(RULE, text) == ([("EMAIL", "ann@posteo.net")] if "@" in text else [])


@pytest.mark.parametrize(
    ("name", "number", "wrong"),
    [
        ("PTIN", "P-00634642", "P-0063464"),
        ("NIT", "0614-050707-104-8", "0614-050707-104-7"),
        ("PNF", "7111 042 925", "7111 042 926"),
    ],
)
def test_further_national_numbers_count_beside_their_names_with_a_right_check(
    name: str, number: str, wrong: str
) -> None:
    assert [text for _, text in found(RULE, f"{name}: {number}")] == [number]
    assert [text for _, text in found(RULE, f"{name}: {wrong}")] == []
