"""Detection of obfuscated words (rot13, reversed, leetspeak, spaced letters) and of ciphers of letters (Caesar, Atbash,
words written backwards, Morse), and how to undo both.

The words are traces only: they say that a text is worth setting right. A cipher is noticed by the words that it makes
of a few long words; each is undone in one pass over the text.
"""

from __future__ import annotations

import codecs
import re
import string
from itertools import islice

from apps.guardrails.regex.re2_patterns import STATEFUL, PatternFilter, compile_re2
from apps.guardrails.text.word_disguises import CONFIRMATIONS, DISGUISES, WORDS, find_disguised_words

# Words long enough that no shift of one of them is another word.
_LONG_WORDS = """
ignore disregard previous instructions restrictions guidelines password reveal system prompt pretend without anything
everything developer respond unfiltered character your this with
""".split()  # noqa: SIM905 - as words are written
_LETTERS = string.ascii_lowercase
_SHIFTS = {shift: str.maketrans(_LETTERS, _LETTERS[shift:] + _LETTERS[:shift]) for shift in range(1, 26)}
_ATBASH = str.maketrans(_LETTERS, _LETTERS[::-1])
_CODES = ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- .-- -..- -.-- --.."
_MORSE = dict(zip(_CODES.split(), _LETTERS, strict=True))


def any_of(words: list[str]) -> str:
    """Return the expression of one of some words."""
    return r"\b(?:" + "|".join(words) + r")\b"


# Ciphers, and expressions that notice them in normalized UTF-8. More words notice rot13 (`_TRACES`).
CIPHERS = dict(
    [
        *(
            (f"caesar{shift}", any_of([word.translate(table) for word in _LONG_WORDS]))
            for shift, table in _SHIFTS.items()
            if shift != 13
        ),
        ("atbash", any_of([word.translate(_ATBASH) for word in _LONG_WORDS])),
        ("backwards", any_of([word[::-1] for word in _LONG_WORDS if word != "system"])),
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


_WORDS = WORDS["traces"].split()
# Words of any English text: turned around or shifted, they are no words.
_COMMON = ["the", "you", "your", "this", "that", "with"]
_LOOKS = {"a": "4@", "e": "3", "i": "1!|", "o": "0", "s": "5$", "t": "7+", "l": "1|", "g": "9", "b": "8"}
_DIGITS = str.maketrans(
    {"4": "a", "@": "a", "3": "e", "0": "o", "5": "s", "$": "s", "7": "t", "+": "t", "!": "i", "9": "g", "8": "b"}
)


def _leet(word: str) -> str:
    """Return the expression of a word with at least one letter written as a sign."""
    parts = [f"[{letter}{re.escape(_LOOKS.get(letter, ''))}]" for letter in word]
    return "|".join(
        "".join(parts[:place]) + f"[{re.escape(_LOOKS[letter])}]" + "".join(parts[place + 1 :])
        for place, letter in enumerate(word)
        if letter in _LOOKS
    )


_TRACES = (
    ("rot13", any_of([codecs.encode(word, "rot13") for word in (*_WORDS, *_COMMON)])),
    ("reversed", any_of([word[::-1] for word in (*_WORDS, *_COMMON) if word not in ("system",)])),
    ("leetspeak", r"(?:^|[^a-z0-9+/=])(?:" + "|".join(_leet(word) for word in _WORDS) + r")(?:[^a-z0-9+/=]|$)"),
    ("spaced", r"(?:^|[^a-z0-9])(?:[a-z][ ._*|/-]{1,3}){5,}[a-z](?:[^a-z0-9]|$)"),
    (
        "pieces",
        r"\b[a-z][a-z0-9]{0,3} ?\+ ?[a-z][a-z0-9]{0,3}\b|\b(?:join|concatenate|combine|joined|glue)\b|\bpart ?1\b",
    ),
)
# One pass for all of them.
_ALL = [*_TRACES, *DISGUISES.items(), *CIPHERS.items()]
_FILTER = PatternFilter([expression for _, expression in _ALL], STATEFUL)


def find_obfuscations(folded_utf8: bytes) -> set[str]:
    """Return the ways in which words of this text may be turned, disguised or taken apart."""
    noticed = {_ALL[index][0] for index in _FILTER.matching(folded_utf8)}
    refused = {name for name in noticed & CONFIRMATIONS.keys() if not CONFIRMATIONS[name](folded_utf8)}
    return {*(noticed - refused), *find_disguised_words(folded_utf8)}


def undo_leetspeak(folded: str, one: str) -> str:
    """Return the text with signs and digits as the letters they look like; a 1 or a bar becomes `one`."""
    return folded.translate(_DIGITS).translate({ord("1"): one, ord("|"): one})


_LETTER_RUN = re.compile(r"(?<![^\W_])(?:[^\W\d_](?:[ ._*|/-]{1,3})){5,}[^\W\d_](?![^\W_])")
# Any characters that stand apart, letters or not: this tells in a hundredth of the time where letters may. Where there
# are many runs, the expression above reads the whole text.
_CHARACTER_RUN = compile_re2(r"(?:[^ ._*|/-][ ._*|/-]{1,3}){5,}[^ ._*|/-]")
_MAX_RUNS = 64
_GAP = re.compile(r"[ ._*|/-]{2,3}")
# Words that are recognized without word boundaries.
_KNOWN = re.compile(f"({'|'.join(sorted(WORDS['spaced'].split(), key=len, reverse=True))})")


def join_spaced_letters(raw: str) -> str:
    """Return the text with letters that stand apart put together again, and spaces where words end."""
    utf8 = raw.encode("utf-8", "surrogatepass")
    runs = [run.span() for run in islice(_CHARACTER_RUN.finditer(utf8), _MAX_RUNS + 1)]
    if len(runs) > _MAX_RUNS:
        return _LETTER_RUN.sub(_join, raw)
    pieces, read, done = [], 0, 0
    for first, last in runs:
        start = read + len(utf8[done:first].decode("utf-8", "surrogatepass"))
        end = start + len(utf8[first:last].decode("utf-8", "surrogatepass"))
        before = raw[max(0, start - 1) : start]
        # With the characters around it, which say whether its first and last letters stand apart.
        joined = _LETTER_RUN.sub(_join, before + raw[start : end + 1])
        pieces += [raw[read:start], joined[len(before) : len(joined) - len(raw[end : end + 1])]]
        read, done = end, last
    return "".join([*pieces, raw[read:]])


def _join(run: re.Match[str]) -> str:
    """Put the letters of a run together; words end at wider gaps, or at spaces where something else parts letters."""
    words = run[0].split(" ") if re.search(r"[^\W\d_][._*|/-]", run[0]) else _GAP.split(run[0])
    joined = [re.sub(r"[ ._*|/-]", "", word) for word in words]
    if len(joined) > 1:
        return " ".join(joined)
    return " ".join(_KNOWN.sub(r"\1 ", joined[0].lower()).split())
