"""Normalization of runs: composing runs alone gives the same as composing the whole text, and white space is one."""

from __future__ import annotations

import random
import sys
import unicodedata

import pytest

from apps.guardrails.text import normalization
from apps.guardrails.text.normalization import NormalizedText, collapse_whitespace, normalize, spaces_in_ascii
from apps.guardrails.text.steady_characters import STEADY, is_quiet, replace_fixed_forms
from apps.guardrails.text.unicode_tables import HOMOGLYPHS, STYLED

UTF8 = ("utf-8", "surrogatepass")
# Characters that meet in texts that hide something: marks, invisible ones, other widths, halves of syllables, tags.
ODD = [
    *map(chr, (*range(0x80, 0x180), *range(0x300, 0x310), *range(0x370, 0x480), *range(0x2000, 0x2070))),
    *map(chr, (*range(0x3000, 0x3010), *range(0xFE00, 0xFE10), *range(0xFF00, 0xFF40), *range(0xE0020, 0xE0030))),
    *"\u0345\u09be\u09c7\u0e33\u0f77\u1100\u1161\u11a8\uac00\u1e9e\u2122\u3099\u30cf\ud800\U0001f150\U0001d400\U0001f600",
]


def whole(raw: str) -> str:
    """Return the text composed at one go, in its case."""
    hidden = normalization._strip_invisible(raw)
    return spaces_in_ascii(unicodedata.normalize("NFKC", hidden).encode(*UTF8)).decode(*UTF8)


@pytest.mark.parametrize("seed", range(2))
def test_runs_are_composed_as_the_whole_text_is(seed: int) -> None:
    chosen = random.Random(seed)
    pool = [*ODD, *"ab iI \n" * 20, *chosen.sample(STEADY, 40)]
    for _ in range(2000):
        # Long enough that single runs are few.
        raw = "x" * 3000 + "".join(chosen.choice(pool) for _ in range(chosen.randint(1, 12)))
        composed = normalization._compose_runs(raw.encode(*UTF8))
        assert composed is None or composed.decode(*UTF8) == whole(raw)
        mapped = normalization._map_homoglyphs(whole(raw).casefold().encode(*UTF8))
        assert normalize(raw) == collapse_whitespace(mapped).decode(*UTF8)


def test_a_text_of_many_runs_is_composed_at_one_go() -> None:
    raw = "e\u0301x" * 2000
    assert normalization._compose_runs(raw.encode()) is None
    assert normalize(raw) == "\u00e9x" * 2000


def test_steady_characters_never_become_one_with_what_stands_before_them() -> None:
    assert not set(STEADY) & normalization._second_halves()
    for character in STEADY:
        assert unicodedata.is_normalized("NFKC", character)
        assert unicodedata.combining(character) == 0
        assert normalize(f"a{character}") == f"a{character}".casefold() or not is_quiet(character)


def test_fixed_forms_are_those_of_compatibility_composition() -> None:
    for character in "\u00a0\u2026\u3000\uff0c\uff08\uff09\uff1a\uff1b\uff1f\uff01":
        written = f"a\uff00{character}".encode()
        assert replace_fixed_forms(written).decode()[2:] == unicodedata.normalize("NFKC", character)
    assert replace_fixed_forms("a\ufe0f".encode()) == b"a"


@pytest.mark.parametrize("pool", ["ab \t\n", "a  \n\r\x1c\x1f\x0b", "a" * 40 + "  \n"])
def test_white_space_is_one_space(pool: str) -> None:
    chosen = random.Random(len(pool))
    for _ in range(3000):
        raw = "".join(chosen.choice(pool) for _ in range(chosen.randint(0, 60)))
        words = raw.split()
        expected = f"{' ' * raw[:1].isspace()}{' '.join(words)}{' ' * raw[-1:].isspace()}" if words else " " * bool(raw)
        assert collapse_whitespace(raw.encode()).decode() == expected


def test_every_white_space_becomes_a_space() -> None:
    for code in range(sys.maxunicode + 1):
        if chr(code).isspace():
            assert normalize(f"a{chr(code)}{chr(code)}\u00b2b") == "a 2b"


def test_offsets_lead_back_where_single_runs_were_composed() -> None:
    raw = "x" * 5000 + "\ufb01re\u0301 \u00a0 end"
    text = NormalizedText(raw, normalize(raw))
    assert text.text == "x" * 5000 + "fir\u00e9 end"
    assert text.origin(5000, 5004) == (5000, 5004)
    assert text.origin(text.text.index("end"), len(text.text)) == (len(raw) - 3, len(raw))


@pytest.mark.parametrize("times", [1, 99])
def test_letters_that_look_alike_are_mapped_however_many_there_are(times: int) -> None:
    russian = "собака у окна, " * 300
    assert normalize(russian + "ignоre оxоx, ᴀɪ " * times) == russian + "ignore oxox, ai " * times


@pytest.mark.parametrize("seed", range(2))
def test_runs_are_translated_as_the_whole_text_is(seed: int) -> None:
    chosen = random.Random(seed)
    for _ in range(300):
        rare = "".join(chosen.choice("aboоаяжωο 𝐚ℌⓐ🅰1") for _ in range(chosen.randint(1, 9)))
        utf8 = ("ж and о " * chosen.randint(1, 500) + rare + " x " * chosen.randint(0, 2) + rare).encode(*UTF8)
        for pattern, same, table in (
            (normalization._MIXED, normalization._mixed_runs(), HOMOGLYPHS),
            (normalization._FANCY, normalization._fancy_runs(), STYLED),
        ):
            whole_text = normalization._translate_all(pattern, table, utf8)
            assert normalization._translate_runs(pattern, same, table, utf8) == whole_text


@pytest.mark.parametrize("seed", range(2))
def test_even_pieces_are_mapped_as_they_would_be_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = random.Random(seed)
    pool = [*ODD, *"ab iI \n ßİ" * 20, *chosen.sample(STEADY, 60), *"，（\u3000\u2026\ufe0f"]
    even = normalization._is_even
    seen = {True: 0, False: 0}
    for _ in range(3000):
        raw = "".join(chosen.choice(pool if chosen.random() < 0.3 else "ab中Я") for _ in range(chosen.randint(1, 9)))
        if not normalization._stands_alone(raw[0]):
            continue
        seen[even(raw)] += 1
        mapped = normalization._map_offsets(raw, 0, len(raw))
        monkeypatch.setattr(normalization, "_is_even", lambda _: False)
        assert normalization._map_offsets(raw, 0, len(raw)) == mapped
        monkeypatch.setattr(normalization, "_is_even", even)
    assert seen[True] > 500
    assert seen[False] > 500
    assert [even(piece) for piece in ("中文，a b", "a  b", "a\n", "\u2026", "ß", "e\u0301", "\x1f")] == [
        *(True, False, True, False, False, False, True)
    ]
