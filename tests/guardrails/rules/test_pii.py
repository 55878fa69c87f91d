"""Personal data: exactly the right characters, labelled rightly, however they are written; and nothing that looks
alike.

The bars hold for the labelled texts, which the rule was improved on: they keep the figures from falling, and say less
about new texts.
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


@pytest.mark.parametrize(
    ("text", "kind", "number"),
    [
        ("My phone number is (+31) (12) 3456781.", "PHONE", "(+31) (12) 3456781"),
        ("My phone number is(+45)12-34-56-71.", "PHONE", "(+45)12-34-56-71"),
        ("My phone number is ( 19 ) 38294421.", "PHONE", "( 19 ) 38294421"),
        ("My phone number is 010 - 123 45 61.", "PHONE", "010 - 123 45 61"),
        ("Ask for her at (187) 456-7812.", "PHONE", "(187) 456-7812"),
        ("Ask for her at (187).456.7812.", "PHONE", "(187).456.7812"),
        ("They wrote 011-82-10-1234-5671 on it.", "PHONE", "011-82-10-1234-5671"),
        ("They are not answering at 78 651 452", "PHONE", "78 651 452"),
        ("Please stop sending messages to 0489 25 37 21", "PHONE", "0489 25 37 21"),
        ("球会所：13604779661", "PHONE", "13604779661"),
        ("I lost my card 180016070420458.", "CREDIT_CARD", "180016070420458"),
        ("Is it charged for the credit card 3598899323053410?", "CREDIT_CARD", "3598899323053410"),
        (
            "blocked for 6e40:4041:c617:e898:c11:40d2:c669:2eb4 again",
            "IP_ADDRESS",
            "6e40:4041:c617:e898:c11:40d2:c669:2eb4",
        ),
        ("Write to jane.roe at posteo dot net today", "EMAIL", "jane.roe at posteo dot net"),
        ("My email is jane at posteo.net, write to me", "EMAIL", "jane at posteo.net"),
        ("NIE: x-2482300w", "NATIONAL_ID", "x-2482300w"),
    ],
)
def test_further_ways_of_writing_are_found(text: str, kind: str, number: str) -> None:
    assert found(RULE, text) == [(kind, number)]


def test_a_list_of_mobile_numbers_in_chinese_is_found_whole() -> None:
    numbers = ["13604779661", "13604770962"]
    assert found(RULE, f"球会所：{numbers[0]}或{numbers[1]}") == [("PHONE", number) for number in numbers]


@pytest.mark.parametrize(
    "text",
    [
        "订单号13812345671已发货",
        "card 180016070420459 is not one",
        "the fingerprint is 6e:40:40:41:c6:17:e8:98",
        "We look at numbers dot by dot",
        "You can log in at posteo.net",
        "messages to 24 teams on 3 channels",
        # Right but for its place: the province alone.
        "110001198001010015",
    ],
)
def test_what_is_written_alike_passes(text: str) -> None:
    assert found(RULE, text) == []
