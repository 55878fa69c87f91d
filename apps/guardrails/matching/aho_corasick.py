"""Aho-Corasick multi-pattern matching: all words and phrases found in one pass over a normalized text."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import ahocorasick
import re2

from apps.guardrails.findings.scan_types import MAX_SPANS
from apps.guardrails.regex.re2_patterns import LITERALS, max_pattern_bytes, re2_options
from apps.guardrails.text.normalization import normalize_keeping_case, normalized_forms
from apps.guardrails.text.scanned_text import ScannedText

# Scripts that write without spaces: between their letters, every place is a word's boundary.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
# Ends of phrases that are looked at, for each character of a text, before the rest counts as found.
_MAX_ENDS = 4
# Characters of all literals of a gate at most, and of each literal at least: every text contains shorter ones.
_MAX_GATE, _LEAST_OF_EACH = 40_000, 4
# Bytes of a node of an automaton with its link, and of a form with the phrases that it stands for.
_NODE_BYTES, _FORM_BYTES, _PHRASE_BYTES = 64, 200, 300


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
        """`max_bytes` is what the phrases take at most."""
        by_form: defaultdict[str, list[Phrase]] = defaultdict(list)
        for phrase in phrases:
            for form in {form.strip() for form in normalized_forms(phrase.text)} - {""}:
                by_form[form].append(phrase)
        self._owners = sorted({phrase.owner for these in by_form.values() for phrase in these})
        self._automaton = ahocorasick.Automaton()
        for form, these in by_form.items():
            self._automaton.add_word(form, (len(form), tuple(these)))
        self._automaton.make_automaton()
        self._gate = literal_gate(by_form)
        texts = sum(_FORM_BYTES + _PHRASE_BYTES * len(these) for these in by_form.values())
        nodes = self._automaton.get_stats()["nodes_count"] if by_form else 0
        self.max_bytes = self._gate.max_bytes + _NODE_BYTES * nodes + texts

    def find(self, text: ScannedText) -> Iterator[PhraseMatch]:
        """Yield every occurrence, overlapping ones too; `MAX_SPANS` of an owner, and then the rest as one."""
        if not self._owners or not self._gate.may_match(text.normalized_utf8):
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


class LiteralGate(NamedTuple):
    """One expression that tells ten times faster than an automaton that none of many literals is in a text."""

    expression: re2._Regexp | None
    max_bytes: int

    def may_match(self, utf8: bytes) -> bool:
        """Tell whether a text may contain one of the literals."""
        return self.expression is None or self.expression.search(utf8) is not None


def literal_gate(literals: Collection[str]) -> LiteralGate:
    """Return the gate of literals: of many or long ones it looks for the beginnings, of very many for nothing."""
    each = _MAX_GATE // max(len(literals), 1)
    if not literals or (each < _LEAST_OF_EACH and sum(map(len, literals)) > _MAX_GATE):
        return LiteralGate(None, 0)
    whole = sum(map(len, literals)) <= _MAX_GATE
    words = sorted({literal if whole else literal[:each] for literal in literals})
    memory = LITERALS.of(sum(map(len, words)))
    options = re2_options(memory)
    options.never_capture = True
    expression = re2.compile("|".join(map(re2.escape, words)), options)
    return LiteralGate(expression, max_pattern_bytes(expression.programsize, memory))
