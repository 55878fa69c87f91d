"""Near names: suggestions for a misspelled name, by edit distance. Pure.

The number of comparisons is limited: a client that sends only unknown names must not cost more than any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# Names outside of this length are not compared. Maximum known names to compare, the most similar in length first.
_MIN_LENGTH, _MAX_LENGTH = 2, 64
_MAX_COMPARED: Final = 12
MAX_SUGGESTIONS: Final = 3
# One edit per this many characters of a name, at least one and at most `_MAX_EDITS`.
_CHARACTERS_PER_EDIT, _MAX_EDITS = 4, 3
# Answers that are kept: a client that has a name wrong sends it again and again.
_MAX_KEPT: Final = 256


class NearNames:
    """Known names, prepared for case-insensitive comparison."""

    def __init__(self, known: Iterable[str]) -> None:
        # By length: each with its lower-case spelling, and its letters.
        self._known: dict[int, list[tuple[str, str, int]]] = {}
        for name in dict.fromkeys(known):
            spelled = name.lower()
            self._known.setdefault(len(spelled), []).append((name, spelled, _letters(spelled)))
        self._kept: dict[tuple[str, int], list[str]] = {}

    def find(self, wanted: str, ignored: int = 0) -> list[str]:
        """Return the names nearest to `wanted`, all at the same distance, in their order; none if all are too far.

        The first `ignored` characters do not count towards the allowed number of edits.
        """
        if len(wanted) - ignored < _MIN_LENGTH or len(wanted) > _MAX_LENGTH:
            return []
        kept = self._kept.get((wanted, ignored))
        if kept is None:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            kept = self._kept[wanted, ignored] = self._search(wanted.lower(), ignored)
        return kept.copy()

    def _search(self, wanted: str, ignored: int) -> list[str]:
        bound = min(max(1, (len(wanted) - ignored) // _CHARACTERS_PER_EDIT), _MAX_EDITS)
        letters, length = _letters(wanted), len(wanted)
        possible = []
        for other_length in range(length - bound, length + bound + 1):
            for name, spelled, others in self._known.get(other_length, ()):
                # An edit adds or removes at most one letter, which gives a lower bound of the distance.
                missing = (letters & ~others).bit_count()
                if missing <= bound and (surplus := (others & ~letters).bit_count()) <= bound:
                    possible.append((max(missing, surplus, abs(other_length - length)), name, spelled))
        possible.sort(key=lambda one: one[0])
        near: list[str] = []
        for least, name, spelled in possible[:_MAX_COMPARED]:
            if least > bound:
                break
            distance = _distance(wanted, spelled, bound)
            if distance < bound:
                near.clear()
            if distance <= bound:
                near.append(name)
                bound = distance
        return sorted(near)[:MAX_SUGGESTIONS]


def _letters(name: str) -> int:
    """Return the set of a name's letters as bits; some letters share one."""
    bits = 0
    for letter in name:
        bits |= 1 << (ord(letter) & 63)
    return bits


def _distance(one: str, other: str, bound: int) -> int:
    """Return the number of insertions, deletions, replacements and swaps of neighbors that turn `one` into `other`; any
    value above `bound` once it is exceeded."""
    # Cells further than the bound from the diagonal are above it, and are not computed.
    far, width = bound + 1, len(other)
    before: list[int] = []
    last = [min(column, far) for column in range(width + 1)]
    for row, letter in enumerate(one, 1):
        now = [far] * (width + 1)
        now[0] = min(row, far)
        nearest = now[0]
        for column in range(max(row - bound, 1), min(row + bound, width) + 1):
            wanted = other[column - 1]
            least = last[column - 1] if letter == wanted else 1 + min(last[column - 1], last[column], now[column - 1])
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == wanted:
                least = min(least, before[column - 2] + 1)
            now[column] = least
            nearest = min(nearest, least)
        if nearest > bound:
            return far
        before, last = last, now
    return last[-1]
