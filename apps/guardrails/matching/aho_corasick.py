"""Aho-Corasick multi-pattern matching: all words and phrases found in one pass over a normalized text."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import ahocorasick
import re2

from apps.guardrails.findings.scan_types import MAX_SPANS
from apps.guardrails.regex.re2_patterns import LITERALS, re2_options
from apps.guardrails.text.normalization import normalize_keeping_case, normalized_forms
from apps.guardrails.text.scanned_text import ScannedText

# Scripts that write without spaces: between their letters, every place is a word's boundary.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
# Ends of phrases that are looked at, for each character of a text, before the rest counts as found.
_MAX_ENDS = 4


class Phrase(NamedTuple):
    """A phrase to search for. Every match names its `owner`; `whole` means as words, `cased` in just this case."""

    owner: int
    text: str
    whole: bool = True
    cased: bool = False


class PhraseMatch(NamedTuple):
    """`phrase` stands at `raw[start:end]`; None: there was too much to look at, and the rest is taken for a match."""

    owner: int
    start: int
    end: int
    phrase: str | None


class PhraseMatcher:
    """Phrases compiled together."""

    def __init__(self, phrases: Iterable[Phrase]) -> None:
        by_form: defaultdict[str, list[Phrase]] = defaultdict(list)
        for phrase in phrases:
            for form in {form.strip() for form in normalized_forms(phrase.text)} - {""}:
                by_form[form].append(phrase)
        self._owners = sorted({phrase.owner for these in by_form.values() for phrase in these})
        self._automaton = ahocorasick.Automaton()
        for form, these in by_form.items():
            self._automaton.add_word(form, (len(form), tuple(these)))
        self._automaton.make_automaton()
        self._gate = _gate_of(by_form) if by_form else None

    def find(self, text: ScannedText) -> Iterator[PhraseMatch]:
        """Yield every occurrence, overlapping ones too; `MAX_SPANS` of an owner, and then the rest as one."""
        if self._gate is None or self._gate.search(text.normalized_utf8) is None:
            return
        folded = text.normalized
        looked_at, most = 0, _MAX_ENDS * len(folded) + 10_000
        seen: Counter[int] = Counter()
        for last, (length, phrases) in self._automaton.iter(folded):
            looked_at += 1
            start, end = last - length + 1, last + 1
            if looked_at > most:
                yield from (PhraseMatch(owner, *text.origin(start, len(folded)), None) for owner in self._owners)
                return
            for phrase in phrases:
                if seen[phrase.owner] > MAX_SPANS or not _is_match(phrase, text, start, end):
                    continue
                seen[phrase.owner] += 1
                reaches = end if seen[phrase.owner] <= MAX_SPANS else len(folded)
                yield PhraseMatch(phrase.owner, *text.origin(start, reaches), phrase.text)


def is_boundary(text: str, at: int) -> bool:
    """Tell whether a word may begin or end between `text[at - 1]` and `text[at]`."""
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    return not (_is_letter(before) and _is_letter(after)) or bool(_UNSPACED.match(before) or _UNSPACED.match(after))


def _is_match(phrase: Phrase, text: ScannedText, start: int, end: int) -> bool:
    if phrase.whole and not (is_boundary(text.normalized, start) and is_boundary(text.normalized, end)):
        return False
    if not phrase.cased:
        return True
    first, last = text.origin(start, end)
    written, wanted = normalize_keeping_case(text.raw[first:last]).strip(), normalize_keeping_case(phrase.text).strip()
    # Letters that look alike are the same to us; small ones and capitals are not.
    return len(written) == len(wanted) and all(
        one.isupper() == other.isupper() for one, other in zip(written, wanted, strict=True)
    )


def _is_letter(character: str) -> bool:
    return character.isalnum() or character == "_" or unicodedata.combining(character) > 0


def _gate_of(forms: Iterable[str]) -> re2._Regexp:
    """Return one expression that tells ten times faster than the automaton that there is nothing to find."""
    words = sorted(forms)
    options = re2_options(LITERALS.of(sum(map(len, words))))
    options.never_capture = True
    return re2.compile("|".join(map(re2.escape, words)), options)
