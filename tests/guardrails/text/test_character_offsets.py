"""Offsets of characters in UTF-8, beside those that Python counts."""

from __future__ import annotations

from apps.guardrails.text.ascii_folding import AsciiFoldedText
from apps.guardrails.text.character_offsets import CharacterOffsets


def test_characters_before_a_byte_are_those_that_begin_there() -> None:
    text = "aé漢😀" * 700
    offsets = CharacterOffsets(text.encode())
    begins = 0
    for count, character in enumerate(text):
        assert offsets.at(begins) == count
        begins += len(character.encode())
    assert offsets.at(begins) == len(text)
    assert CharacterOffsets(b"plain").at(3) == 3


def test_a_folded_text_leads_back_whether_characters_became_one_or_none() -> None:
    for raw in ("é – card １２３ ok", "é\u200b– card １\u200b２３ ok"):
        folded = AsciiFoldedText(raw, raw.encode())
        start = folded.utf8.index(b"123")
        first, last = folded.origin(start, start + 3)
        assert raw[first:last].replace("\u200b", "") == "１２３"
        accent = folded.utf8.index("é".encode())
        assert folded.origin(accent, accent + 2) == (0, 1)
