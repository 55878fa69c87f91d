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
# Words that mean nothing by themselves: they only say which language is written.
_FUNCTION = "function"
# What is written together with a word in front of it: articles and the like in Romance languages, before an apostrophe,
# and in Arabic. Where a word is not in the table, what stands behind them is looked for.
_IN_FRONT = re.compile(
    r"(?:[ldnmtscj]|qu|un|all|dall|dell|nell|sull|quell|quest|jusqu|lorsqu|puisqu)['\u2019]"
    r"|[\u0648\u0641]?(?:\u0627\u0644|\u0628\u0627\u0644|\u0644\u0644|\u0643\u0627\u0644|[\u0628\u0644\u0643\u0633])"
    r"|[\u0648\u0641]"
)
_LEAST_BEHIND = 2


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
    # The entries up to this one mean nothing in any language.
    functions: int
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


def mean_something(entries: Sequence[int]) -> bool:
    """Tell whether any of these entries means something, in some language."""
    return max(entries, default=0) > _table().functions or _FIRST_OF_TWO in entries


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
        entry = _entry_of(word)
        if not entry and (front := _IN_FRONT.match(word)) and len(word) - front.end() > _LEAST_BEHIND:
            entry = _entry_of(word[front.end() :])
        own = (entry,) if entry else ()
    return (_FIRST_OF_TWO, *own) if word in table.first_words else own


def _entry_of(word: str) -> int | None:
    table = _table()
    entry = table.words.get(word)
    if entry is None:
        sizes = (size for size in table.sizes.get(word[:_START], ()) if size <= len(word))
        entry = next(filter(None, (table.beginnings.get(word[:size]) for size in sizes)), None)
    return entry


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
    _add_shorter_beginnings(words, beginnings)
    _add_shorter_beginnings(beginnings, beginnings)
    every = list(dict.fromkeys(map(tuple, chain(words.values(), beginnings.values()))))
    functions = sum({meaning for _, meaning in entry} == {_FUNCTION} for entry in every)
    # Those that mean nothing first.
    entries = [(), *sorted(every, key=lambda entry: {meaning for _, meaning in entry} != {_FUNCTION})]
    number = {entry: place for place, entry in enumerate(entries)}
    languages = sorted(listed_by_language, key=lambda name: (name == "en", name), reverse=True)
    vote_of = {language: 1 << 8 * _VOTE * place for place, language in enumerate(languages)}
    numbered = {form: number[tuple(of)] for form, of in words.items()}
    of_language: dict[str, dict[int, tuple[str, ...]]] = {language: {} for language in languages}
    for place, entry in enumerate(entries):
        for language, meaning in entry:
            if meaning == _FUNCTION:
                continue
            of_language[language][place] = (*of_language[language].get(place, ()), meaning)
    sizes: defaultdict[str, set[int]] = defaultdict(set)
    for form in beginnings:
        sizes[form[:_START]].add(len(form))
    return _Table(
        languages=tuple(languages),
        votes=tuple(sum({vote_of[language] for language, _ in entry}) for entry in entries),
        count_votes=struct.Struct(f"<{len(languages)}I").unpack,
        functions=functions,
        meanings=of_language,
        words={form: place for form, place in numbered.items() if "_" not in form},
        two_words={_two(form): place for form, place in numbered.items() if "_" in form},
        beginnings={form: number[tuple(of)] for form, of in beginnings.items()},
        sizes={start: tuple(sorted(of, reverse=True)) for start, of in sizes.items()},
        first_words=frozenset(form.split("_")[0] for form in words if "_" in form),
        within=_any_of(filter(RUN.fullmatch, words)),
    )


def _add_shorter_beginnings(
    forms: dict[str, dict[tuple[str, str], None]], beginnings: dict[str, dict[tuple[str, str], None]]
) -> None:
    """Add to each form what its beginnings mean in languages that do not have it: the longest alone is looked up."""
    for form in sorted(forms, key=len, reverse=True):
        for size in range(len(form) - 1, _START - 1, -1):
            known = {language for language, _ in forms[form]}
            shorter = beginnings.get(form[:size], {})
            forms[form].update(dict.fromkeys(one for one in shorter if one[0] not in known))


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
