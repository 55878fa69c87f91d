"""Ciphers of letters (Caesar, Atbash, words written backwards, Morse): how they are noticed and undone.

A cipher is noticed by the words that it makes of a few long words; each is
undone in one pass over the text.
"""

from __future__ import annotations

import string

# Words long enough that no shift of one of them is another word.
_WORDS = """
ignore disregard previous instructions restrictions guidelines password reveal system prompt pretend without anything
everything developer respond unfiltered character your this with
""".split()  # noqa: SIM905 - as words are written
_LETTERS = string.ascii_lowercase
_SHIFTS = {shift: str.maketrans(_LETTERS, _LETTERS[shift:] + _LETTERS[:shift]) for shift in range(1, 26)}
_ATBASH = str.maketrans(_LETTERS, _LETTERS[::-1])
_MORSE = {
    ".-": "a",
    "-...": "b",
    "-.-.": "c",
    "-..": "d",
    ".": "e",
    "..-.": "f",
    "--.": "g",
    "....": "h",
    "..": "i",
    ".---": "j",
    "-.-": "k",
    ".-..": "l",
    "--": "m",
    "-.": "n",
    "---": "o",
    ".--.": "p",
    "--.-": "q",
    ".-.": "r",
    "...": "s",
    "-": "t",
    "..-": "u",
    "...-": "v",
    ".--": "w",
    "-..-": "x",
    "-.--": "y",
    "--..": "z",
}


def _any(words: list[str]) -> str:
    return r"\b(?:" + "|".join(words) + r")\b"


# Ciphers, and expressions that notice them in normalized UTF-8. More words notice rot13 (`obfuscation`).
CIPHERS = dict(
    [
        *(
            (f"caesar{shift}", _any([word.translate(table) for word in _WORDS]))
            for shift, table in _SHIFTS.items()
            if shift != 13
        ),
        ("atbash", _any([word.translate(_ATBASH) for word in _WORDS])),
        ("backwards", _any([word[::-1] for word in _WORDS if word != "system"])),
        (
            "last_word_first",
            # Pairs of words that rarely follow one another the other way round in an order to a model.
            r"\b(?:(?:instructions?|rules|prompt|guidelines|restrictions|directives|orders)[.,!?:;]{0,2} "
            r"(?:previous|prior|above|earlier|system|your|initial|hidden|all|no|any|safety)"
            r"|(?:limits|filters?|ethics|morals|censorship|limitations)[.,!?:;]{0,2} "
            r"(?:no|without|any|ethical|safety|your)"
            r"|(?:everything|anything|all)[.,!?:;]{0,2} (?:forget|ignore|disregard)|anything do"
            r"|mode (?:developer|god|dan)|(?:dan|gpt|bot|ai)[.,!?:;]{0,2} (?:an |a )?(?:are|as) (?:you|act)"
            r"|now are you|be to pretend|me (?:tell|give)|(?:you're|you) (?:pretend|imagine))\b",
        ),
    ]
)


def decipher(cipher: str, normalized: str) -> str:
    """Return a normalized text as it reads when a cipher is undone."""
    if cipher == "atbash":
        return normalized.translate(_ATBASH)
    if cipher == "backwards":
        return " ".join(word[::-1] for word in normalized.split(" "))
    if cipher == "last_word_first":
        return " ".join(reversed(normalized.split(" ")))
    return normalized.translate(_SHIFTS[26 - int(cipher.removeprefix("caesar"))])


def from_morse(signs: str) -> str:
    """Return what dots and dashes spell: letters parted by a blank, words by a slash, a bar or wider blanks."""
    plain = signs.translate(str.maketrans("\u00b7\u2022\u2212\u2013\u2014_", "..----"))
    for wide in ("|", "\n", "   "):
        plain = plain.replace(wide, " / ")
    return "".join(" " if letter == "/" else _MORSE.get(letter, "") for letter in plain.split())
