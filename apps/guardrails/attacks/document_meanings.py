"""Meanings of words in many languages, as the document model counts them.

Knows the table beside this file (`document_concepts.toml`). Must never know a weight, a rule, or who speaks. A word may
mean something in several languages, "die" is an article in one and a wish in another: so what words mean is read in two
steps. `entries_in` says which entries of the table they are, as numbers, and `language_of` which language most of them
belong to; `meanings_of` is what they mean in that one.
"""

from __future__ import annotations

import functools
import re
import struct
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

from apps.guardrails.text.normalization import normalized_forms

T = TypeVar("T")

# Scripts without blanks: their words are looked for within runs of letters.
RUN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]{2,}")
_TABLE = Path(__file__).with_name("document_concepts.toml")
# Letters that beginnings of words are told apart by at first.
_START = 2
# In front of what a word means by itself: it may mean something else together with the word behind it.
_FIRST_OF_TWO = 0
_WORDS_KEPT, _LONGEST_KEPT = 20_000, 24
# Bytes of a number of votes.
_VOTE = 4


class WordMemo(dict[str, T]):
    """What was made of words, as long as there are not too many; of long ones, which hardly return, nothing is kept."""

    def __init__(self, make: Callable[[str], T]) -> None:
        """Take what is asked for a word that is not known."""
        super().__init__()
        self._make = make

    def __missing__(self, word: str) -> T:
        """Return what is made of a word, and keep it."""
        made = self._make(word)
        if len(word) <= _LONGEST_KEPT:
            if len(self) >= _WORDS_KEPT:
                self.clear()
            self[word] = made
        return made


class _Table(NamedTuple):
    """The entries of the table by number; 0 is none."""

    # Languages, behind each those that lose against it where as many words belong to both.
    languages: tuple[str, ...]
    # Of each entry, one number of `_VOTE` bytes for each language: 1 where it belongs to it. So votes are one sum.
    votes: tuple[int, ...]
    count_votes: Callable[[bytes], tuple[int, ...]]
    # By language: what entries mean there that belong to it.
    meanings: dict[str, dict[int, tuple[str, ...]]]
    # Entries by word, by two words, and by how words begin.
    words: dict[str, int]
    two_words: dict[tuple[str, str], int]
    beginnings: dict[str, int]
    # By the first letters: how long the beginnings are that have these, the longest first.
    sizes: dict[str, tuple[int, ...]]
    first_words: frozenset[str]
    within: re.Pattern[str]


def entries_in(words: Sequence[str]) -> tuple[int, ...]:
    """Return which entries of the table these words are, in their order, two that belong together as one."""
    return join_entries(tuple(chain.from_iterable(map(entries_of_word, words))), words)


def join_entries(entries: tuple[int, ...], words: Sequence[str]) -> tuple[int, ...]:
    """Return the entries of words, taken one by one, with two that belong together as one."""
    return tuple(_entries_of_two(words)) if _FIRST_OF_TWO in entries else entries


def language_of(entries: Sequence[int]) -> str:
    """Return the language that most of these entries belong to; there is one at least."""
    table = _table()
    votes = sum(map(table.votes.__getitem__, entries))
    counts = table.count_votes(votes.to_bytes(_VOTE * len(table.languages), "little"))
    return table.languages[counts.index(max(counts))]


def meanings_of(entries: Iterable[int], language: str) -> list[str]:
    """Return what these entries mean in a language, in their order."""
    return list(chain.from_iterable(filter(None, map(_table().meanings[language].get, entries))))


def _entries_of_word(word: str) -> tuple[int, ...]:
    table = _table()
    if not word.isascii() and RUN.search(word):
        own = tuple(map(table.words.__getitem__, table.within.findall(word)))
    else:
        entry = table.words.get(word)
        if entry is None:
            sizes = (size for size in table.sizes.get(word[:_START], ()) if size <= len(word))
            entry = next(filter(None, (table.beginnings.get(word[:size]) for size in sizes)), None)
        own = (entry,) if entry else ()
    return (_FIRST_OF_TWO, *own) if word in table.first_words else own


_entries = WordMemo(_entries_of_word)
# The entries of a word alone, as `join_entries` takes them.
entries_of_word = _entries.__getitem__


def _entries_of_two(words: Sequence[str]) -> list[int]:
    together = _table().two_words
    found: list[int] = []
    for word, behind in zip(words, [*words[1:], ""], strict=True):
        both = together.get((word, behind))
        found += (one for one in ((both,) if both else _entries[word]) if one != _FIRST_OF_TWO)
    return found


@functools.cache
def _table() -> _Table:
    words: defaultdict[str, dict[tuple[str, str], None]] = defaultdict(dict)
    beginnings: defaultdict[str, dict[tuple[str, str], None]] = defaultdict(dict)
    listed_by_language = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    for language, meanings in listed_by_language.items():
        for meaning, listed in meanings.items():
            for word in listed.split():
                for form in _forms_of(word.removesuffix("~")):
                    (beginnings if word.endswith("~") else words)[form][language, meaning] = None
    for form, of in beginnings.items():
        words[form].update(of)
    entries = [(), *dict.fromkeys(map(tuple, chain(words.values(), beginnings.values())))]
    number = {entry: place for place, entry in enumerate(entries)}
    languages = sorted(listed_by_language, key=lambda name: (name == "en", name), reverse=True)
    vote_of = {language: 1 << 8 * _VOTE * place for place, language in enumerate(languages)}
    numbered = {form: number[tuple(of)] for form, of in words.items()}
    of_language: dict[str, dict[int, tuple[str, ...]]] = {language: {} for language in languages}
    for place, entry in enumerate(entries):
        for language, meaning in entry:
            of_language[language][place] = (*of_language[language].get(place, ()), meaning)
    sizes: defaultdict[str, set[int]] = defaultdict(set)
    for form in beginnings:
        sizes[form[:_START]].add(len(form))
    return _Table(
        languages=tuple(languages),
        votes=tuple(sum({vote_of[language] for language, _ in entry}) for entry in entries),
        count_votes=struct.Struct(f"<{len(languages)}I").unpack,
        meanings=of_language,
        words={form: place for form, place in numbered.items() if "_" not in form},
        two_words={_two(form): place for form, place in numbered.items() if "_" in form},
        beginnings={form: number[tuple(of)] for form, of in beginnings.items()},
        sizes={start: tuple(sorted(of, reverse=True)) for start, of in sizes.items()},
        first_words=frozenset(form.split("_")[0] for form in words if "_" in form),
        within=_any_of(filter(RUN.fullmatch, words)),
    )


def _forms_of(word: str) -> list[str]:
    return [word.lower()] if word.isascii() else sorted(normalized_forms(word))


def _two(form: str) -> tuple[str, str]:
    first, second = form.split("_")
    return first, second


def _any_of(forms: Iterable[str]) -> re.Pattern[str]:
    """Return what finds the longest of these words at each place; those that begin alike are looked at together."""
    rests: defaultdict[str, list[str]] = defaultdict(list)
    for form in forms:
        rests[form[0]].append(form[1:])
    return re.compile(
        "|".join(
            f"{first}(?:{'|'.join(sorted(of, key=lambda rest: (-len(rest), rest)))})" for first, of in rests.items()
        )
    )
