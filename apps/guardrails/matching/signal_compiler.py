"""Compiler of attack signal tables: from words by language and the forms they make to RE2 patterns.

In a table `{name}` stands for words or a gap, and the head that identifies a pattern is between `<` and `>`.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from re import findall, match, search, split, sub
from typing import Any

import msgspec

from apps.guardrails.regex.re2_patterns import STATELESS, LazyPattern, lazy_pattern
from apps.guardrails.text.normalization import normalize

# Expressions of the table's gaps, with and without spaces between words. A gap never leaves its sentence.
_SPACED = {name: rf"[^ .!?]* (?:[^ .!?]+ ){{0,{words}}}[^ .!?a-z0-9]*" for name, words in (("gap", 4), ("far", 9))}
_SPACED["near"] = r"[^ ,.!?]* (?:[^ ,.!?]+ ){0,2}[^ ,.!?a-z0-9]*"
# Inside of a head: up to three words.
_SPACED["fill"] = r"(?: [^ .!?]+)?(?: [^ .!?]+)?(?: [^ .!?]+)? "
_UNSPACED = {
    name: rf"[^.!?。]{{0,{letters}}}" for name, letters in (("near", 4), ("fill", 6), ("gap", 10), ("far", 20))
}
_REST = "[^ ,.!?;:\"'`”»)\\]]*"
_LANGUAGE_OF_PROGRAMS = "en"
_WITHOUT_SPACES = {"zh", "ja", "th"}


class SignalPattern(msgspec.Struct, frozen=True):
    """One form: what stands before its head, and its head with what follows."""

    kind: str
    weight: float
    # It is an order: in reported speech it is worth half.
    imperative: bool
    # It counts even as a mention.
    plain: bool
    before: LazyPattern | None
    ahead: LazyPattern
    # In a text that was written for others it needs no second signal: it addresses the model and says what to do, or is
    # in another language than programs and their documents.
    alone: bool = False
    # It names what an order of its kind is about, and orders nothing.
    noun: bool = False


def compile_table(table: Mapping[str, Any]) -> Iterator[tuple[bool, SignalPattern, str]]:
    """Yield every form of a table: whether it only supports others, its pattern, the expression of its head."""
    for entry in table["shape"]:
        for form in _forms_of(entry, table["words"]):
            yield entry.get("supports", False), _pattern_of(entry, *form), form[1]


def _pattern_of(entry: Mapping[str, Any], before: str, head: str, after: str, language: str) -> SignalPattern:
    return SignalPattern(
        kind=entry["kind"],
        weight=entry["weight"],
        imperative=entry.get("imperative", False),
        plain=entry.get("plain", False),
        # A group makes RE2 match short texts without keeping states. `\\C` is any byte: a text may begin in a letter.
        before=lazy_pattern(rf"(?s:\C*?)((?:{before})$)", STATELESS) if before else None,
        ahead=lazy_pattern(f"({head}{after})", STATELESS),
        alone=entry.get("alone", language != _LANGUAGE_OF_PROGRAMS),
        noun=entry.get("noun", False),
    )


def _forms_of(entry: Mapping[str, Any], words: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str, str, str]]:
    """Yield (before, head, after, language) of every form of a shape in every language that has its words."""
    for form, language in product(entry["forms"], entry.get("languages", words)):
        names = [name for name in findall(r"\{(\w+)\}", form) if name not in _SPACED]
        if not all(name in words.get(language, {}) for name in names):
            continue
        if not names and language != next(iter(entry.get("languages", words))):
            continue
        gaps = _UNSPACED if language in _WITHOUT_SPACES else _SPACED
        meanings = {**gaps, **{name: _alternatives(words[language][name]) for name in names}}
        before, head, after = split(r"(?<!\\)[<>]", form)
        whole_word = r"\b" if match(r"(\(\?:)?[a-z]", before) else ""
        yield whole_word + _read(before, meanings), _head(head, meanings), _read(after, meanings), language


def _head(part: str, meanings: Mapping[str, str]) -> str:
    return _read(part, meanings) if search(r"\{[a-z]", part) else f"(?:{_alternatives(part)})"


def _read(part: str, meanings: Mapping[str, str]) -> str:
    return sub(r"\{([a-z_]\w*)\}", lambda name: f"(?:{meanings[name[1]]})", part)


@functools.cache
def _alternatives(written: str) -> str:
    """Return the words of a list as one expression: folded like texts, with and without their accents."""
    folded = normalize(written)
    plain = _without_accents(folded)
    forms = [folded] if plain == folded else [folded, plain]
    return "|".join(_bounded(word) for form in forms for word in _top_level(form))


def _bounded(word: str) -> str:
    left = r"\b" if match(r"(\(\?:)?[a-z0-9]", word) else ""
    right = r"\b" if search(r"[a-z0-9]\)?$", word) else ""
    return left + word.replace("~", _REST) + right


def _top_level(expression: str) -> Iterable[str]:
    """Split at the bars that stand outside of brackets."""
    words, depth, start = [], 0, 0
    for index, letter in enumerate(expression):
        escaped = index > 0 and expression[index - 1] == "\\"
        if letter in "([" and not escaped:
            depth += 1
        elif letter in ")]" and not escaped:
            depth -= 1
        elif letter == "|" and depth == 0 and not escaped:
            words.append(expression[start:index])
            start = index + 1
    return [*words, expression[start:]]


def _without_accents(text: str) -> str:
    """Return Latin letters without their accents; other scripts stay as they are."""
    if text.isascii():
        return text
    return "".join(
        piece[0] if piece[0].isascii() and len(piece) > 1 else letter
        for letter in text
        for piece in (unicodedata.normalize("NFD", letter),)
    )
