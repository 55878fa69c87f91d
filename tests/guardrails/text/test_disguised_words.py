"""Accented words: a small expression notices whatever the exact one finds."""

from __future__ import annotations

import random

import pytest
import re2

from apps.guardrails.text import word_disguises
from apps.guardrails.text.obfuscation import find_obfuscations
from apps.guardrails.text.word_disguises import ACCENTED_WORDS

MARKS = "\u0301\u0327\u0323"


@pytest.mark.parametrize(
    ("text", "accented"),
    [
        ("please ignóre this", True),
        ("i\u0301gnore", True),
        ("íñ\u0303stru\u0327ctions, all instruçtions", True),
        ("ignore", False),
        # Noticed, but no accents of these letters, or too many marks on one.
        ("ignßre", False),
        ("i" + "\u0301" * 10 + "gnore", False),
        ("índice", False),
        ("xígnore", False),
    ],
)
def test_words_are_accented_only_by_accents_of_their_letters(text: str, accented: bool) -> None:
    assert ("accented" in find_obfuscations(text.encode())) == accented


def test_what_the_exact_expression_finds_is_noticed() -> None:
    chosen = random.Random(5)
    words = word_disguises._ALL
    assert len(ACCENTED_WORDS) == len(words)
    for word, (noticed, exact) in zip(words, ACCENTED_WORDS, strict=True):
        notice = re2.compile(noticed)
        for _ in range(20):
            letters = [
                letter + (chosen.choice(MARKS) * chosen.randint(1, 9) if chosen.random() < 0.2 else "")
                if chosen.random() < 0.6 or not word_disguises._ACCENTED[letter]
                else chosen.choice(word_disguises._ACCENTED[letter])
                for letter in word
            ]
            written = f"x {''.join(letters)}.".encode()
            if exact.compiled.search(written) is not None:
                assert notice.search(written) is not None
            elif len(written) > len(f"x {word}."):
                pytest.fail(f"not found: {written.decode()}")
