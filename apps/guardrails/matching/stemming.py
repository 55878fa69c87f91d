"""Stemming (Snowball): phrases found by the stems of their words, so that "casinos" is "casino"."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

import snowballstemmer

from apps.guardrails.findings.scan_types import MAX_SPANS
from apps.guardrails.matching.aho_corasick import is_boundary, literal_gate
from apps.guardrails.text.normalization import normalized_forms
from apps.guardrails.text.scanned_text import ScannedText

LANGUAGES = tuple(snowballstemmer.algorithms())
# Languages whose stems are the beginnings of their words, but for the last two letters.
_BEGINNINGS = frozenset({"english", "porter"})
_WORD = re.compile(r"\w+")
_NEXT = re.compile(r"\W{1,8}(\w+)")
_MAX_WORD_LENGTH = 40
# Unknown words of one text that are stemmed (some 20 microseconds each); others are compared by beginning.
_MAX_NEW = 1000
# Words of all languages whose stems a process keeps: some 200 bytes each.
_MAX_KNOWN = 20_000
_known: dict[tuple[str, str], str] = {}
# Bytes of a phrase with its stems, and of each of its words.
_PHRASE_BYTES, _WORD_BYTES = 600, 100
# Forms of a topic's words that are distinguished in one text.
_MAX_FORMS = 200
# ASCII with everything but letters and digits made a blank.
_WORDS_ONLY = bytes(code if chr(code).isalnum() or code == 95 or code > 127 else 32 for code in range(256))


class StemmedPhrase(NamedTuple):
    """A phrase to search for by its stems. Every match names its `owner`."""

    owner: int
    phrase: str


class StemMatcher:
    """Phrases of one language, compiled together."""

    def __init__(self, language: str, phrases: Iterable[StemmedPhrase]) -> None:
        """`max_bytes` is what the phrases take at most."""
        self._language = language
        self._by_first: defaultdict[str, list[tuple[tuple[str, ...], StemmedPhrase]]] = defaultdict(list)
        for phrase in phrases:
            for form in normalized_forms(phrase.phrase):
                words = tuple(stem(language, word) for word in _WORD.findall(form))
                if words:
                    self._by_first[words[0]].append((words, phrase))
        beginnings = sorted({first[: max(2, len(first) - 2)] for first in self._by_first})
        self._gate = literal_gate(beginnings if language in _BEGINNINGS else ())
        self._keys = {beginning[:2] for beginning in beginnings} if language in _BEGINNINGS else None
        texts = [_PHRASE_BYTES + _WORD_BYTES * len(words) for same in self._by_first.values() for words, _ in same]
        self.max_bytes = self._gate.max_bytes + sum(texts)

    def find(self, text: ScannedText) -> Iterator[tuple[StemmedPhrase, int, int]]:
        """Yield every occurrence as (phrase, start, end) in `text.raw`; at most `MAX_SPANS` of a word's form."""
        if not self._by_first or (self._keys is not None and not self._gate.may_match(text.normalized_utf8)):
            return
        for form, first in self._forms_in(text):
            for at in _places_of(form, text.normalized):
                for words, phrase in self._by_first[first]:
                    end = self._end_of(words, text.normalized, at + len(form))
                    if end:
                        yield phrase, *text.origin(at, end)

    def _forms_in(self, text: ScannedText) -> list[tuple[str, str]]:
        """Return the words of a text whose stem begins a phrase, each with its stem."""
        words = words_of(text)
        if self._keys is not None:
            words = {word for word in words if word[:2] in self._keys}
        forms = stems(self._language, words, self._by_first)
        return sorted(form for form in forms if form[1] in self._by_first)[:_MAX_FORMS]

    def _end_of(self, phrase: tuple[str, ...], folded: str, end: int) -> int:
        """Return where a phrase ends whose first word does at `end`; 0 if its other words do not follow."""
        for wanted in phrase[1:]:
            following = _NEXT.match(folded, end)
            if following is None or stem(self._language, following[1]) != wanted:
                return 0
            end = following.end()
        return end


def words_of(text: ScannedText) -> set[str]:
    """Return the different words of a text, folded."""
    if text.normalized.isascii():
        return set(text.normalized_utf8.translate(_WORDS_ONLY).decode().split())
    return set(_WORD.findall(text.normalized))


def stem(language: str, word: str) -> str:
    """Return a folded word's stem; a word too long for a language is its own. All languages share a bounded memory."""
    if len(word) > _MAX_WORD_LENGTH:
        return word
    found = _known.get((language, word))
    if found is None:
        # A stemmer of its own: one keeps the word it is at, and large texts are looked through on threads.
        found = str(snowballstemmer.stemmer(language).stemWord(word))
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        _known[language, word] = found
    return found


def stems(language: str, words: Iterable[str], wanted: Container[str]) -> Iterator[tuple[str, str]]:
    """Yield every word with its stem; past `_MAX_NEW` new ones, with the wanted stem that it begins with."""
    new = 0
    for word in words:
        new += (language, word) not in _known
        if new <= _MAX_NEW or (language, word) in _known:
            yield word, stem(language, word)
        else:
            longest = min(len(word), _MAX_WORD_LENGTH)
            yield word, next((word[:size] for size in range(longest, 1, -1) if word[:size] in wanted), word)


def _places_of(form: str, folded: str) -> Iterator[int]:
    """Yield where a word stands by itself; after `MAX_SPANS` looks, no more."""
    at = -1
    for _ in range(MAX_SPANS):
        at = folded.find(form, at + 1)
        if at < 0:
            return
        if is_boundary(folded, at) and is_boundary(folded, at + len(form)):
            yield at
