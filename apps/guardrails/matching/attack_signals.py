"""Signs of an attack, read from a table: words by language, the shapes they make, and what each is worth.

Knows how such a table is written and how to look for everything in it at one go. Must never know which attack a table
is about, nor where a text comes from.

What a shape is recognised by, its head, stands between `<` and `>`; one automaton looks for all heads in the whole
text. Only where one is found are shapes tried, each on at most `_REACH` bytes: the time is linear in the length of any
text, and those with nothing in them cost one pass. What looks the same is tried once; and where there are more heads
than in any text that means no harm, the rest counts as found without being tried.
"""

from __future__ import annotations

import functools
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from re import findall, match, search, split, sub
from typing import Any

import msgspec
import re2

from apps.guardrails.findings.scan_types import UNFINISHED, Span
from apps.guardrails.matching.mention_filter import MentionFilter
from apps.guardrails.regex.re2_patterns import compile_re2, find_last_end, re2_options
from apps.guardrails.text.decoding import find_decoded_texts
from apps.guardrails.text.normalization import normalize
from apps.guardrails.text.scanned_text import ScannedText

# How far, in bytes, a shape reaches to either side of its head's beginning.
_REACH = 320
_BEHIND = 160
# Signs at most this far apart, in bytes, count together.
_NEAR = 600
# Heads and signs that are looked at in one text: this many, and one more for so many bytes.
_LOOKED_AT, _BYTES_EACH = 1000, 128
_ENOUGH = 1.0 - 1e-9  # weights are sums of floats
# What the table's gaps stand for, with and without spaces between words. A gap never leaves its sentence.
_SPACED = {name: rf"[^ .!?]* (?:[^ .!?]+ ){{0,{words}}}[^ .!?a-z0-9]*" for name, words in (("gap", 4), ("far", 9))}
_SPACED["near"] = r"[^ ,.!?]* (?:[^ ,.!?]+ ){0,2}[^ ,.!?a-z0-9]*"
# Inside of a head: up to three words.
_SPACED["fill"] = r"(?: [^ .!?]+)?(?: [^ .!?]+)?(?: [^ .!?]+)? "
_UNSPACED = {
    name: rf"[^.!?。]{{0,{letters}}}" for name, letters in (("near", 4), ("fill", 6), ("gap", 10), ("far", 20))
}
_REST = "[^ ,.!?;:\"'`”»)\\]]*"
_WITHOUT_SPACES = {"zh", "ja"}
# What somebody took the trouble to hide is worth this much more.
_HIDDEN = 0.6
# Encodings that addresses, pages and JSON are full of hide nothing.
_EVERYDAY = {"percent", "entities", "escapes"}


class AttackSignal(msgspec.Struct, frozen=True):
    """One sign in a folded text: `utf8[start:end]`, what it is a sign of, and its worth from 0 to 1."""

    start: int
    end: int
    kind: str
    weight: float
    # Where its head stands: two signs with one head are one.
    head: int = 0
    shape: _SignalPattern | None = None


class _SignalPattern(msgspec.Struct, frozen=True):
    kind: str
    weight: float
    # It is an order: told of somebody else, it is worth half.
    imperative: bool
    # It counts however it is spoken of.
    plain: bool
    before: re2._Regexp | None
    ahead: re2._Regexp


class _SignalFinder:
    """Shapes that are looked for together: one automaton for their heads, one for what follows."""

    def __init__(self, forms: Iterable[tuple[_SignalPattern, str]]) -> None:
        self._shapes: list[_SignalPattern] = []
        heads: set[str] = set()
        self._ahead = re2.Set.MatchSet(re2_options())
        for shape, head in forms:
            heads.add(head)
            self._shapes.append(shape)
            self._ahead.Add(shape.ahead.pattern)
        self._ahead.Compile()
        self._heads = compile_re2("|".join(sorted(heads)))

    def signs(self, utf8: bytes, places: Iterable[tuple[int, int]]) -> Iterator[AttackSignal]:
        """Yield the signs whose heads begin in one of the `places` (start, end) of a text, from left to right."""
        known: dict[tuple[int, bytes], list[AttackSignal]] = {}
        left = _LOOKED_AT + len(utf8) // _BYTES_EACH
        for start, end in places:
            while head := self._heads.search(utf8, start, end):
                at = head.start()
                if left <= 0:
                    yield AttackSignal(at, find_last_end(self._heads, utf8, head), UNFINISHED, 1.0, at)
                    return
                start, first = at + 1, max(0, at - _BEHIND)
                around = (at - first, utf8[first : at + _REACH])
                if around not in known:
                    known[around], left = list(self._signs_at(*around)), left - 1
                left -= 1 + len(known[around])
                for sign in known[around]:
                    yield AttackSignal(sign.start + first, sign.end + first, sign.kind, sign.weight, at, sign.shape)

    def _signs_at(self, at: int, utf8: bytes) -> Iterator[AttackSignal]:
        for index in self._ahead.Match(utf8[at:]) or ():
            sign = _sign_of(self._shapes[index], utf8, at)
            if sign is not None:
                yield sign


class SignalTable:
    """Every shape of a table, compiled once."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        forms = [
            (entry.get("supports", False), _shape_of(entry, *form), form[1])
            for entry in table["shape"]
            for form in _forms_of(entry, table["words"])
        ]
        # The kinds that are orders; others only frame one, and say nothing by being hidden.
        self._orders = frozenset(table["orders"])
        self._leading = _SignalFinder((shape, head) for supports, shape, head in forms if not supports)
        self._supporting = _SignalFinder((shape, head) for supports, shape, head in forms if supports)

    def signs(self, utf8: bytes) -> list[AttackSignal]:
        """Return the signs in a folded text, from left to right; those that only support, only near others."""
        signs = list(self._leading.signs(utf8, [(0, len(utf8))]))
        signs += self._supporting.signs(utf8, list(_around(signs, len(utf8))))
        return sorted(signs, key=lambda sign: sign.start)

    def find(self, utf8: bytes, *, seen: bytes = b"", bonus: float = 0.0) -> list[AttackSignal]:
        """Return what is found: signs near one another whose kinds together, with `bonus`, are worth 1 or more.

        Signs whose words stand in `seen` as well are left out. What is found is as long as the signs that make it up,
        and named by the worthiest of them; none overlap.
        """
        fresh = functools.cache(lambda words: words not in seen)
        signs = [sign for sign in self.signs(utf8) if not seen or fresh(utf8[sign.start : sign.end])]
        # What is only spoken of is told last: most signs stand alone, and need no second look.
        suspects = {sign for group in self._worthy(signs, bonus) for sign in group}
        telling = MentionFilter(utf8)
        meant = [
            sign
            for sign in (_weigh_by_mention(sign, telling) for sign in signs if sign in suspects)
            if sign is not None
        ]
        found: list[AttackSignal] = []
        for group in self._worthy(meant, bonus):
            name = max(group, key=lambda sign: sign.weight).kind
            start, end = min(sign.start for sign in group), max(sign.end for sign in group)
            if found and start <= found[-1].end:
                found[-1] = AttackSignal(min(start, found[-1].start), max(end, found[-1].end), found[-1].kind, 1.0)
            else:
                found.append(AttackSignal(start, end, name, 1.0))
        return found

    def spans(self, text: ScannedText) -> list[Span]:
        """Return what is found in a text as it stands and in what it says when decoded."""
        spans = [
            Span(*text.normalized_byte_origin(sign.start, sign.end), sign.kind)
            for sign in self.find(text.normalized_utf8)
        ]
        for view in find_decoded_texts(text):
            bonus = 0.0 if view.encoding in _EVERYDAY else _HIDDEN
            found = self.find(view.text.normalized_utf8, seen=text.normalized_utf8, bonus=bonus)
            if found:
                spans.append(Span(view.start, view.end, f"{view.encoding}:{found[0].kind}"))
        return spans

    def _worthy(self, signs: list[AttackSignal], bonus: float) -> Iterator[list[AttackSignal]]:
        """Yield, for each sign that makes its neighbourhood worth enough, the signs that do so, one of each kind."""
        latest: dict[str, AttackSignal] = {}
        for sign in signs:
            former = latest.get(sign.kind)
            if former is None or former.weight <= sign.weight or sign.start - former.start > _NEAR:
                latest[sign.kind] = sign
            by_head = {
                other.head: other
                for other in sorted(latest.values(), key=lambda other: other.weight)
                if sign.start - other.start <= _NEAR
            }
            worth = sum(other.weight for other in by_head.values())
            if any(other.kind in self._orders for other in by_head.values()):
                worth += bonus
            if worth > _ENOUGH:
                yield list(by_head.values())


def load_signal_table(path: Path) -> SignalTable:
    """Return the table in the file, compiled; raises where it is not well formed."""
    return SignalTable(tomllib.loads(path.read_text(encoding="utf-8")))


def _sign_of(shape: _SignalPattern, utf8: bytes, head: int) -> AttackSignal | None:
    ahead = shape.ahead.match(utf8, head, head + _REACH)
    if ahead is None:
        return None
    start = head
    if shape.before is not None:
        behind = shape.before.search(utf8[max(0, head - _BEHIND) : head])
        if behind is None:
            return None
        start = max(0, head - _BEHIND) + behind.start()
    return AttackSignal(start, ahead.end(), shape.kind, shape.weight, head, shape)


def _weigh_by_mention(sign: AttackSignal, telling: MentionFilter) -> AttackSignal | None:
    """Return the sign with what it is worth where it stands; None if it is only spoken of."""
    if sign.shape is None or sign.shape.plain:
        return sign
    counts = telling.weight_of(sign.start, sign.end, order=sign.shape.imperative)
    return msgspec.structs.replace(sign, weight=sign.weight * counts) if counts else None


def _around(signs: list[AttackSignal], size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a text that are near a sign, none of them twice."""
    start = end = 0
    for sign in signs:
        if sign.head - _NEAR > end:
            if end > start:
                yield start, end
            start = sign.head - _NEAR
        end = min(size, max(end, sign.end + _NEAR))
    if end > start:
        yield start, end


def _shape_of(entry: Mapping[str, Any], before: str, head: str, after: str) -> _SignalPattern:
    return _SignalPattern(
        kind=entry["kind"],
        weight=entry["weight"],
        imperative=entry.get("imperative", False),
        plain=entry.get("plain", False),
        before=compile_re2(f"(?:{before})$") if before else None,
        ahead=compile_re2(head + after),
    )


def _forms_of(entry: Mapping[str, Any], words: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Yield (before, head, after) of every form of a shape in every language that has its words."""
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
        yield whole_word + _read(before, meanings), _head(head, meanings), _read(after, meanings)


def _head(part: str, meanings: Mapping[str, str]) -> str:
    return _read(part, meanings) if search(r"\{[a-z]", part) else f"(?:{_alternatives(part)})"


def _read(part: str, meanings: Mapping[str, str]) -> str:
    return sub(r"\{([a-z_]\w*)\}", lambda name: f"(?:{meanings[name[1]]})", part)


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
    return "".join(
        piece[0] if piece[0].isascii() and len(piece) > 1 else letter
        for letter in text
        for piece in (unicodedata.normalize("NFD", letter),)
    )
