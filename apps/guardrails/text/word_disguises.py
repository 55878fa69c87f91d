"""Detection of disguised head words (misspelled, accented, split by signs, run together) and how to undo it.

It uses words that nearly every order to a model contains. One automaton for each disguise searches for it; the text
is only rewritten where one is found, and each rewriting is one pass.
"""

from __future__ import annotations

import functools
import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import re2

from apps.guardrails.regex.re2_patterns import LazyPattern, compile_re2, lazy_pattern
from apps.guardrails.regex.required_literals import LiteralAutomaton
from apps.guardrails.text.rewriting import Origin, rewrite
from apps.guardrails.text.scanned_text import ScannedText
from apps.guardrails.text.unicode_tables import beyond_ascii

# Long enough that no other word of English is one slip of the finger away.
_HEADS = """
ignore disregard previous instructions guidelines restrictions unrestricted uncensored unfiltered jailbreak
""".split()  # noqa: SIM905 - as words are written
_SHORT = ("reveal", "forget", "system", "prompt", "override", "bypass", "pretend", "without", "anything", "developer")
# Words beside a head: with one of them an order is recognized without word boundaries.
_OVERRIDES = "ignore|disregard|forget|bypass|override|reveal|print|show|repeat"
_OBJECTS = "instructions?|rules|guidelines|prompts?|restrictions|directives|everything|polic(?:y|ies)|filters?|safety"
_LINKS = (
    "all|any|every|of|the|your|my|these|those|previous|prior|above|earlier|past|system|initial|hidden|safety|content"
)
_SIGNS = r"[_*.~|/\\+^=#:,;`\"-]"
_MARK_RANGES = ((0x300, 0x36F), (0x483, 0x489), (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x20D0, 0x20FF), (0xFE20, 0xFE2F))
_MARKS = "[" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in _MARK_RANGES) + "]"
_ACCENTED = {
    letter: "".join(
        one
        for one in map(chr, (*range(0xC0, 0x250), *range(0x1E00, 0x1F00)))
        if unicodedata.normalize("NFD", one)[0] == letter
    )
    for letter in "abcdefghijklmnopqrstuvwxyz"
}
_ACCENTED_LETTERS = frozenset("".join(_ACCENTED.values()))


# Words of orders to a model, and words between them; those that are noticed with two letters in the wrong order.
WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_SWAPPED: list[str] = WORDS["swapped"].split()
_RUN_HEADS = (
    "ignore|disregard|forget|previous|instruction|restriction|guideline|pretend|reveal|prompt|unfiltered|uncensored"
    "|withoutany|youarenow"
)


def _swapped(word: str) -> list[str]:
    """Return a word in each form with two neighbours inside of it in the other order."""
    forms = {word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in range(1, len(word) - 2)}
    return sorted(forms - {word})


def _misspelled(word: str) -> list[str]:
    """Return expressions of a word with its inner letters in another order, one of them gone, doubled or another."""
    forms = []
    for at in range(1, len(word) - 1):
        first, letter, rest = word[:at], word[at], word[at + 1 :]
        others = "".join(sorted(set(word[1:-1]) - {letter}))
        if others:
            forms.append(f"{first}[{others}][{''.join(sorted(set(word[1:-1])))}]{{{len(rest) - 1}}}{word[-1]}")
        forms += [
            first + rest,
            f"{first}{letter}{{2}}{rest}" if word[at + 1] != letter and word[at - 1] != letter else "",
        ]
        if len(word) >= len("disregard"):
            forms.append(f"{first}[^{letter} .,;:!?]{rest}")
    return [form for form in forms if form and form != word]


def _words(forms: Callable[[str], list[str]], words: tuple[str, ...]) -> str:
    return r"(?:^|[^a-z0-9])(" + "|".join(form for word in words for form in forms(word)) + r")(?:[^a-z0-9]|$)"


_ALL = (*_HEADS, *_SHORT)
# Four words and more with the same sign between them, of which one is a head; no path of an address. Or so many that
# they are a sentence: titles in addresses are shorter.
_ANY_BETWEEN = r"_.*+~|-"
_SIGNS_BETWEEN = ("_", "-", r"\.", r"\*", r"\+", "~", r"\|")
# By the sign as it is written: an expression of all signs has ten thousand positions.
_CHAINS = {
    sign[-1:].encode(): (
        lazy_pattern(
            rf"(?:^|[^a-z0-9_/.-])(?:[a-z']{{1,14}}{sign}){{0,6}}(?:{'|'.join(_ALL)}){sign}"
            rf"(?:[a-z']{{1,14}}{sign}){{2,}}[a-z]"
        ),
        lazy_pattern(rf"(?:^|[^a-z0-9_/.-])(?:[a-z',.:;!?\"]{{1,16}}{sign}){{8,}}[a-z]"),
    )
    for sign in _SIGNS_BETWEEN
}
_LEAST_SIGNS = (3, 8)
# Words run together, and the runs of letters that are long enough to hold some.
_WORDS_IN_RUN = lazy_pattern(
    rf"[a-z']{{8,}}(?:{_RUN_HEADS})[a-z']{{8,}}|[a-z']{{14,}}(?:{_RUN_HEADS})|(?:{_RUN_HEADS})[a-z']{{14,}}"
)
_LONG_RUN = compile_re2(r"[a-z']{20,}")
_JOINED = rf"(?:{_OVERRIDES})(?:{_LINKS}){{1,5}}(?:{_OBJECTS})"
# Ways in which head words are disguised, and expressions that notice them in normalized UTF-8. `find_disguised_words`
# notices more.
DISGUISES = {
    "misspelled": f"{_words(_misspelled, tuple(_HEADS))}|{_words(_swapped, tuple(_SWAPPED))}",
    # Marks that no letter of a language has are left over on one letter after another.
    "accented": f"(?:[a-z]{_MARKS}{{1,9}}){{4,}}",
    # A head before two more words, or eight signs among letters; which signs, the confirmation says.
    "separated": rf"(?:{'|'.join(_ALL)})(?:[{_ANY_BETWEEN}][a-z']+){{2}}[{_ANY_BETWEEN}]"
    rf"|(?:[a-z',:;!?\"]*[{_ANY_BETWEEN}]){{8}}[a-z]",
    "joined": rf"(?:^|[^a-z0-9_]){_JOINED}",
    # A head; whether the letters around it are words, the confirmation says.
    "run_together": f"(?:{_RUN_HEADS})",
    "emphasized": r"(?:[*_~`]{1,3}[a-z',.!?:]{1,14}[*_~`]{1,3} ?){3,}",
    "listed": r"(?:^|[^a-z0-9])(?:[1-9a-f][.):] ?[a-z']{1,14}[,;]? ){3,}",
}


def _has_chain(normalized_utf8: bytes) -> bool:
    """Tell whether words with the same sign between them have a head among them, or are a sentence."""
    return any(
        normalized_utf8.count(sign) >= least and chain.search(normalized_utf8) is not None
        for sign, chains in _CHAINS.items()
        for least, chain in zip(_LEAST_SIGNS, chains, strict=True)
    )


def _has_words_in_run(normalized_utf8: bytes) -> bool:
    """Tell whether a run of letters without spaces has a head and more words."""
    return any(_WORDS_IN_RUN.search(run[0]) is not None for run in _LONG_RUN.finditer(normalized_utf8))


# Disguises that the expressions above only suspect, and the tests that tell.
CONFIRMATIONS: dict[str, Callable[[bytes], bool]] = {"separated": _has_chain, "run_together": _has_words_in_run}
# Words with accents, and words with signs inside. Expressions of all the ways in which one may have them would be a
# hundred times as large.
_ACCENTS = _ACCENTED_LETTERS.union(chr(code) for first, last in _MARK_RANGES for code in range(first, last + 1))
_ALL_UTF8 = [word.encode() for word in _ALL]
_WORDS_IN_TEXT = LiteralAutomaton({word: [place] for place, word in enumerate(_ALL)})
_SIGN_BYTES = bytes(code for code in range(128) if re.match(_SIGNS, chr(code)))


def find_disguised_words(normalized_utf8: bytes) -> Iterator[str]:
    """Yield the disguises of head words that no one expression notices: "accented", "split"."""
    if has_accented_word(normalized_utf8):
        yield "accented"
    if has_split_word(normalized_utf8):
        yield "split"


def has_accented_word(normalized_utf8: bytes) -> bool:
    """Tell whether a head word has accents, on letters or as marks behind them."""
    if _ACCENTS.isdisjoint(beyond_ascii(normalized_utf8)):
        return False
    written = normalized_utf8.decode("utf-8", "surrogatepass")
    plain = unicodedata.normalize("NFD", written).encode("ascii", "ignore").decode()
    return any(word in plain and any(found[0] != word for found in _accented(word).finditer(written)) for word in _ALL)


def has_split_word(normalized_utf8: bytes) -> bool:
    """Tell whether a head word has signs between its letters, up to three in a place."""
    joined = normalized_utf8.translate(None, _SIGN_BYTES)
    words = (_ALL_UTF8[place] for (place,), _ in _WORDS_IN_TEXT.places(joined, 0, len(joined)))
    return any(
        joined.count(word) > normalized_utf8.count(word)
        and any(found[0] != word for found in _split(word).finditer(normalized_utf8))
        for word in words
    )


@functools.cache
def _accented(word: str) -> re.Pattern[str]:
    """Return the expression of a word with or without accents."""
    marks = "".join(f"{chr(first)}-{chr(last)}" for first, last in _MARK_RANGES)
    return re.compile(
        "(?<![a-z0-9])" + "".join(f"[{letter}{_ACCENTED[letter]}][{marks}]{{0,9}}" for letter in word) + "(?![a-z0-9])"
    )


@functools.cache
def _split(word: bytes) -> re.Pattern[bytes]:
    """Return the expression of a word with or without signs inside."""
    return re.compile(f"(?<![a-z0-9]){f'{_SIGNS}{{0,3}}'.join(word.decode())}(?![a-z0-9])".encode())


_MISSPELLED = lazy_pattern(
    r"\b(?:"
    + "|".join(
        [form for word in _HEADS for form in _misspelled(word)] + [form for word in _SWAPPED for form in _swapped(word)]
    )
    + r")\b"
)
_MEANT = {form.encode(): word.encode() for word in _SWAPPED for form in _swapped(word)}
_RUN = lazy_pattern(r"[a-z']{18,}")
_IN_RUN = lazy_pattern("|".join(sorted(WORDS["vocabulary"].split(), key=len, reverse=True)))
_BETWEEN = lazy_pattern(f"{_SIGNS}{{1,3}}")
_LATIN = frozenset(b"abcdefghijklmnopqrstuvwxyz")
_ENDS_OF_WORDS = _LATIN | frozenset(b"',.:;!?")
_RUN_TOGETHER = lazy_pattern(_JOINED)
_PART = lazy_pattern(f"{_OVERRIDES}|{_LINKS}|{_OBJECTS}")
_ITEM = lazy_pattern(r"(?:^|[^a-z0-9])([1-9a-f][.):] ?)[a-z']")
_EMPHASIS = lazy_pattern("[*_~`]{1,3}")
_MARK = compile_re2(f"{_MARKS}+")


def undo(disguise: str, normalized: ScannedText) -> tuple[str, Origin]:
    """Return a normalized text with one disguise undone, and the way back to it."""
    if disguise == "accented":
        return _without_accents(normalized)
    pattern, by = _UNDO[disguise]
    return rewrite(normalized, pattern.compiled, by)


@functools.lru_cache(maxsize=4096)
def _nearest(word: bytes) -> bytes:
    """Return the head word that a misspelled one was meant to be."""
    if word in _MEANT:
        return _MEANT[word]
    written = word.decode("utf-8", "replace")
    alike = [head for head in _HEADS if head[0] == written[0] and abs(len(head) - len(written)) <= 1]
    if not alike:
        return word
    return max(alike, key=lambda head: (sorted(head) == sorted(written), _shared(head, written))).encode()


def _shared(left: str, right: str) -> int:
    return sum(min(left.count(letter), right.count(letter)) for letter in set(left)) - abs(len(left) - len(right))


def _without_accents(normalized: ScannedText) -> tuple[str, Origin]:
    """Return the text without marks on Latin letters; a letter with one inside of it is one letter still."""
    table = {ord(one): unicodedata.normalize("NFD", one)[0] for one in set(normalized.raw) if one in _ACCENTED_LETTERS}
    return rewrite(ScannedText(normalized.raw.translate(table)), _MARK, lambda _: b"")


def _between_letters(by: bytes, before: frozenset[int] = _LATIN) -> Callable[[re2._Match[bytes]], bytes | None]:
    """Return what replaces signs, but only where they stand between two letters, or behind one of `before`."""

    def replace(signs: re2._Match[bytes]) -> bytes | None:
        start, end = signs.span()
        around = signs.string[max(0, start - 1) : end + 1]
        return by if around[0] in before and around[-1] in _LATIN else None

    return replace


_UNDO: dict[str, tuple[LazyPattern, Callable[[re2._Match[bytes]], bytes | None]]] = {
    "misspelled": (_MISSPELLED, lambda word: _nearest(word[0])),
    "split": (_BETWEEN, _between_letters(b"")),
    "separated": (_BETWEEN, _between_letters(b" ", _ENDS_OF_WORDS)),
    "joined": (_RUN_TOGETHER, lambda run: b" ".join(part[0] for part in _PART.compiled.finditer(run[0]))),
    # The known words of a run of letters, and the letters between them.
    "run_together": (
        _RUN,
        lambda run: b" ".join(_IN_RUN.compiled.sub(lambda word: b" " + word[0] + b" ", run[0]).split()),
    ),
    "emphasized": (_EMPHASIS, lambda _: b""),
    "listed": (_ITEM, lambda _: b""),
}
DISGUISE_NAMES = frozenset(("accented", *_UNDO))
