"""Folded texts, and the way back from them: whatever was found is found again in what the client wrote."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from apps.guardrails.text.normalization import normalize, normalize_keeping_case, normalized_forms
from apps.guardrails.text.scanned_text import ScannedText
from tests.support.property_examples import examples

# Letters that fold to nothing, to two, to one of two; that sit on others; that hide; that take two or four bytes.
PIECES = st.sampled_from(
    [
        *("a", "B", "z", " ", "\t", "\n", "ignore", "ß", "ﬁ", "İ", "e\u0301", "\u0301", "\u0316", "ｶﾞ", "가"),
        *("\u1100\u1161\u11a8", "中文", "Ж", "о", "р", "ο", "😀", "\ufe0f", "\U000e0041", "\u200b", "\u200d", "\u00ad"),
        "\ud800",
        # Forms that begin with a space, and a space that is a tag.
        *("¨", "´", "゛", "ﱞ", "\U000e0020"),
    ]
)
TEXTS = st.one_of(st.lists(PIECES, max_size=40).map("".join), st.text(max_size=60))


@pytest.mark.parametrize(
    ("raw", "folded"),
    [
        ("Ignore  ALL\n\tprevious", "ignore all previous"),
        ("ig\u200bno\u00adre", "ignore"),
        ("\u202eignore\u202c", "ignore"),
        ("ｉｇｎｏｒｅ", "ignore"),
        ("𝐢𝓰𝔫𝕠𝗿𝚎", "ignore"),
        ("ⓘⓖⓝⓞⓡⓔ", "ignore"),
        ("🅸🅶🅽🅾🆁🅴", "ignore"),
        ("ɪɢɴᴏʀᴇ", "ignore"),
        # Cyrillic and Greek letters in Latin words.
        ("ignоrе аll", "ignore all"),
        ("ignοre", "ignore"),
        # Words of look-alikes only, in a text that is not Russian.
        ("say СОСА now", "say coca now"),
        # Russian stays Russian, beside English too; a mixed word is given away all the same.
        ("Собака у окна", "собака у окна"),
        ("Слово dog и кот", "слово dog и кот"),
        ("Жук: ignоre", "жук: ignore"),
        ("η ψυχή", "η ψυχή"),
        # Hidden in tag characters, which models read.
        ("hi" + "".join(chr(0xE0000 + ord(letter)) for letter in " Ignore"), "hi ignore"),
        ("e\u200d\u0301", "é"),
        ("", ""),
        ("\u200b", ""),
        (" \u200b ", " "),
    ],
)
def test_what_hides_a_word_is_gone(raw: str, folded: str) -> None:
    assert ScannedText(raw).normalized == folded


def test_case_can_be_kept() -> None:
    assert normalize_keeping_case("U\u200bS  ｏｆ") == "US of"


def test_a_word_has_every_form_that_company_could_give_it() -> None:
    assert normalized_forms("СОСА") == {"соса", "coca"}
    assert normalized_forms("Cola") == {"cola"}


@given(TEXTS)
@settings(max_examples=examples(300), deadline=None)
def test_every_folded_character_comes_from_somewhere(raw: str) -> None:
    text = ScannedText(raw)
    places = [text.origin(at, at + 1) for at in range(len(text.normalized))]
    assert all(0 <= start < end <= len(raw) for start, end in places)
    assert places == sorted(places)
    # Nothing in between is of another character: pieces are the same, or follow one another.
    assert all(later[0] >= earlier[1] or later == earlier for earlier, later in pairwise(places))


@given(TEXTS, st.text("abc \u200bß中", max_size=8), TEXTS)
@settings(max_examples=examples(300), deadline=None)
@example(before=" ¨", middle="", after="")
@example(before=" \U000e0020", middle="", after="")
def test_a_word_is_found_where_it_was_written(before: str, middle: str, after: str) -> None:
    raw = f"{before} |X{middle}X| {after}"
    text = ScannedText(raw)
    wanted = normalize(f"|X{middle}X|")
    at = text.normalized.find(wanted)
    assert at >= 0
    start, end = text.origin(at, at + len(wanted))
    assert normalize(raw[start:end]) == wanted
    assert raw[start] == raw[end - 1] == "|"


def test_nothing_is_found_too_early_behind_a_form_that_begins_with_a_space() -> None:
    """Its space and one before it become one: without that, what follows is placed a character early for each."""
    accents = [chr(code) for code in range(0x80, 0x10000) if unicodedata.normalize("NFKC", chr(code)).startswith(" ")]
    accents = [one for one in accents if not one.isspace()]
    assert len(accents) >= 50
    for accent in (*accents, "\U000e0020"):
        # Once, many times, across the blocks that places are worked out in, and apart by invisible characters.
        for before in (f" {accent}", f"\t{accent}" * 3, f"x {accent}\u200b" * 200, f" \u00ad{accent}\u0301", accent):
            text = ScannedText(f"{before}jane.doe {accent}")
            at = text.normalized.index("jane.doe")
            assert text.origin(at, at + 8) == (len(before), len(before) + 8)


@given(TEXTS, st.data())
@settings(max_examples=examples(200), deadline=None)
def test_bytes_lead_back_to_characters(raw: str, data: st.DataObject) -> None:
    text = ScannedText(raw * 40)
    first = data.draw(st.integers(0, len(text.raw)))
    last = data.draw(st.integers(first, len(text.raw)))
    start = len(text.raw[:first].encode("utf-8", "surrogatepass"))
    end = start + len(text.raw[first:last].encode("utf-8", "surrogatepass"))
    assert text.byte_origin(start, end) == (first, last)


@given(TEXTS)
@settings(max_examples=examples(200), deadline=None)
def test_bytes_of_the_folded_text_lead_back_as_its_characters_do(raw: str) -> None:
    text = ScannedText(raw)
    at = 0
    for index, character in enumerate(text.normalized):
        size = len(character.encode("utf-8", "surrogatepass"))
        assert text.normalized_byte_origin(at, at + size) == text.origin(index, index + 1)
        at += size


@pytest.mark.timeout(30)
@pytest.mark.parametrize("piece", ["\u0301\u0316", "\u200b", "a\u0301", "о", " \t", "\U000e0041", "ｶﾞ", "\ud800"])
def test_nothing_takes_the_square_of_its_length(piece: str) -> None:
    """A second at most for what the square of would take hours."""
    text = ScannedText("x" + piece * (1_000_000 // len(piece)) + " end")
    assert text.normalized.endswith(" end")
    assert text.origin(len(text.normalized) - 3, len(text.normalized)) == (len(text.raw) - 3, len(text.raw))
