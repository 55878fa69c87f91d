"""Trains the model of orders in documents: `python -m bench.document_model FOLDER`, the one `script/guardrails-report`
reads.

Reads what tools, files and pages say in those sources of `tuning` that `attack_corpora.toml` marks with `documents`,
and the project's own (`attack_texts/documents-*.jsonl`): "order" there says which characters are the order. Elsewhere
an order stands somewhere in what no harmless text has as well, and is where the model of the round before thinks. Some
of the shorter attacks of users (`trained`) are read too: what overrides a model does so anywhere. Harmless are some
passages of each harmless text, those around orders, and those that the model of the round before mistook.

A threshold is where so few of the harmless texts of others lie above it, each scored by a model that has seen nothing
of its source; one that repeats another's passage counts once. Short documents have one of their own. The table printed
says what such models find in every source. `--write` renews the weights of the product. `attack_learner` learns: the
same texts make the same bytes.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from apps.guardrails.attacks import document_model
from apps.guardrails.attacks.document_model import (
    MOST_PASSAGES,
    SCALE,
    SHORT,
    DocumentModel,
    Stretch,
    Thresholds,
    share_of,
)
from apps.guardrails.attacks.document_passages import Passage, passages_of
from apps.guardrails.rules.document_model import parts_of
from apps.guardrails.text.normalization import normalize
from bench.attack_learner import Point, learn_weights

# Shares of harmless documents of others that are flagged: of short ones, and of the rest. Of orders in long documents
# few are found at any threshold, so what is spared there costs little.
SHORT_FALSE_POSITIVES, FALSE_POSITIVES = 0.003, 0.001
_CORPORA = Path(__file__).with_name("attack_corpora.toml")
_OWN = Path(__file__).with_name("attack_texts")
_WEIGHTS = Path(document_model.__file__).with_suffix(".tsv")
# A feature says something of orders where several texts of several sources have it. The project's own are by one author
# but of many kinds: each of their parts counts as a source.
_LEAST_TEXTS, _LEAST_SOURCES, _OWN_PARTS = 3, 2, 5
_ROUNDS, _SEED, _FOLDS = 2, 1, 3
# Passages of a harmless text that are learned from at first, and the least score of those that are added.
_HARMLESS, _MISTAKEN = 8, -1.0
# What orders weigh beside harmless passages: those of the project, a large source's (as if it had no more), and users'.
_ORDER, _OWN_ORDER, _LARGE, _USERS = 2.0, 3.0, 100, 0.3
# What an error at a harmless passage costs.
_COST = 0.3
_USERS_LONGEST, _USERS_OF_EACH = 600, 60


class Document(NamedTuple):
    """One text: its passages, their words, and which of them are the order, where that is known."""

    source: str
    part: str
    attack: bool
    passages: tuple[Passage, ...]
    words: tuple[str, ...]
    order: tuple[int, int] | None
    user: bool = False


class StretchExample(NamedTuple):
    """One stretch of a document to learn from."""

    document: Document
    first: int
    after: int

    @property
    def features(self) -> list[str]:
        """Everything that counts in the stretch."""
        return [one for passage in self.document.passages[self.first : self.after] for one in passage.features]


def read_documents(folder: Path) -> list[Document]:
    """Return the texts to learn from; those of the project last."""
    sources = tomllib.loads(_CORPORA.read_text(encoding="utf-8"))["source"]
    found: list[Document] = []
    for source in sorted(sources, key=lambda source: str(source["name"])):
        name = str(source["name"])
        own = bool(source.get("own"))
        if not (source.get("documents") or (source.get("trained") and not own)):
            continue
        users = 0
        path = (_OWN if own else folder) / f"{name}.jsonl"
        for place, row in enumerate(map(json.loads, filter(None, path.read_text(encoding="utf-8").split("\n")))):
            user = row.get("place") != "tool"
            if user and (not source.get("trained") or not _is_brief_attack(row) or users >= _USERS_OF_EACH):
                continue
            if user or source.get("documents"):
                users += user
                found.append(_document_of("project" if own else name, place, row, user=user))
    return [document for document in found if any(passage.features for passage in document.passages)]


def _is_brief_attack(row: dict[str, Any]) -> bool:
    return bool(row["attack"] and row["family"] in ("injection", "extraction") and len(row["text"]) <= _USERS_LONGEST)


def _document_of(source: str, place: int, row: dict[str, Any], *, user: bool) -> Document:
    text = row["text"]
    normalized = normalize(text)
    passages, words = [], []
    for _, part in parts_of(normalized):
        passages += (found := passages_of(part))
        words += [part[passage.start : passage.end] for passage in found]
    order = None
    if "order" in row:
        start, end = (len(normalize(text[:place])) for place in row["order"])
        inside = [
            at
            for at, one in enumerate(passages)
            if 2 * (min(one.end, end) - max(one.start, start)) >= one.end - one.start
        ] or [max(range(len(passages)), key=lambda at: min(passages[at].end, end) - max(passages[at].start, start))]
        order = inside[0], min(inside[-1] + 1, inside[0] + MOST_PASSAGES)
    part = f"{source}{place % _OWN_PARTS}" if source == "project" else source
    return Document(source, part, row["attack"], tuple(passages), tuple(words), order, user)


def train(documents: Sequence[Document], rounds: int = _ROUNDS) -> DocumentModel:
    """Return the model of these texts, without a threshold."""
    chooser = random.Random(_SEED)
    orders = [StretchExample(one, *one.order) for one in documents if one.attack and one.order]
    hidden = [one for one in documents if one.attack and not one.order]
    known = {words for one in documents if not one.attack for words in one.words}
    harmless: dict[tuple[int, int, int], StretchExample] = {}
    for index, one in enumerate(documents):
        for first, after in _harmless_places(one, chooser):
            harmless[index, first, after] = StretchExample(one, first, after)
    places = [(one, _new_places(one, known)) for one in hidden]
    found = [StretchExample(one, *max(spans, key=lambda span: span[1] - span[0])) for one, spans in places]
    model = DocumentModel({}, 0)
    for number in range(rounds):
        model = _learn([*orders, *(found if number or not orders else [])], list(harmless.values()))
        if number < rounds - 1:
            found = [StretchExample(one, *_best_place(model, one, spans)) for one, spans in places]
            for index, one in enumerate(documents):
                if not one.attack:
                    best = best_stretch(model, one)
                    if best.score > SCALE * _MISTAKEN:
                        harmless[index, best.first, best.after] = StretchExample(one, best.first, best.after)
    return model


def _harmless_places(document: Document, chooser: random.Random) -> Iterator[tuple[int, int]]:
    """Yield what is harmless beside an order, and some places of a harmless text."""
    if document.attack:
        first, after = document.order or (0, len(document.passages))
        yield from ((at, at + 1) for at in range(len(document.passages)) if not first <= at < after)
        return
    places = list(_places_of(document))
    yield from chooser.sample(places, min(_HARMLESS, len(places)))


def _places_of(document: Document) -> Iterator[tuple[int, int]]:
    count = len(document.passages)
    for first in range(count):
        yield from ((first, after) for after in range(first + 1, min(count, first + MOST_PASSAGES) + 1))


def _new_places(document: Document, known: set[str]) -> list[tuple[int, int]]:
    """Return the stretches of which no harmless text has a part; all where there is none."""
    new = [span for span in _places_of(document) if not known.intersection(document.words[slice(*span)])]
    return new or list(_places_of(document))


def _best_place(model: DocumentModel, document: Document, spans: Iterable[tuple[int, int]]) -> tuple[int, int]:
    scores = {(one.first, one.after): one.score for one in model.stretches(document.passages)}
    return max(spans, key=lambda span: scores[span])


def best_stretch(model: DocumentModel, document: Document) -> Stretch:
    """Return the stretch that reads the most like an order."""
    return max(model.stretches(document.passages))


def _learn(orders: Sequence[StretchExample], harmless: Sequence[StretchExample]) -> DocumentModel:
    examples = [*orders, *harmless]
    features = [example.features for example in examples]
    vocabulary = _vocabulary_of(examples, features)
    place_of = {feature: place for place, feature in enumerate(vocabulary)}
    count = Counter(example.document.source for example in orders)
    worths = [_worth_of(example, count[example.document.source]) for example in orders] + [1.0] * len(harmless)
    points = [
        Point([place_of[one] for one in of if one in place_of], share_of(len(of)), index < len(orders), _COST * worth)
        for index, (of, worth) in enumerate(zip(features, worths, strict=True))
    ]
    weights, bias = learn_weights(points, len(vocabulary))
    whole = {one: round(SCALE * weight) for one, weight in zip(vocabulary, weights, strict=True)}
    return DocumentModel({one: weight for one, weight in whole.items() if weight}, round(SCALE * bias))


def _worth_of(order: StretchExample, of_source: int) -> float:
    if order.document.source == "project":
        return _ORDER * _OWN_ORDER
    return _ORDER * min(1.0, math.sqrt(_LARGE / of_source)) * (_USERS if order.document.user else 1.0)


def _vocabulary_of(examples: Sequence[StretchExample], features: Sequence[Sequence[str]]) -> list[str]:
    texts: Counter[str] = Counter()
    parts: defaultdict[str, set[str]] = defaultdict(set)
    for example, of in zip(examples, features, strict=True):
        texts.update(set(of))
        for one in of:
            parts[one].add(example.document.part)
    return sorted(one for one, count in texts.items() if count >= _LEAST_TEXTS and len(parts[one]) >= _LEAST_SOURCES)


def score_unseen(documents: Sequence[Document], folds: int = _FOLDS) -> list[Stretch]:
    """Return the best stretch of each text by a model that has seen nothing of its source, or of its part of ours."""
    sources = sorted({one.source.removesuffix("-context") for one in documents} - {"project"})
    random.Random(_SEED).shuffle(sources)
    fold_of = {name: place % folds for place, name in enumerate(sources)}
    fold_of |= {f"project{part}": part % folds for part in range(_OWN_PARTS)}
    of = [fold_of.get(one.part, fold_of.get(one.source.removesuffix("-context"), 0)) for one in documents]
    found = [Stretch(0.0, 0, 1)] * len(documents)
    for fold in range(folds):
        model = train([one for one, place in zip(documents, of, strict=True) if place != fold])
        for index, one in enumerate(documents):
            if of[index] == fold:
                found[index] = best_stretch(model, one)
    return found


def thresholds_of(documents: Sequence[Document], found: Sequence[Stretch]) -> Thresholds:
    """Return the scores that only so few of the harmless texts of others surpass: of short ones, and of the rest."""
    harmless = [
        (one, best) for one, best in zip(documents, found, strict=True) if not one.attack and one.source != "project"
    ]
    short = [pair for pair in harmless if len(pair[0].passages) < SHORT]
    other = [pair for pair in harmless if len(pair[0].passages) >= SHORT]
    return Thresholds(
        _threshold_of(short or other, SHORT_FALSE_POSITIVES), _threshold_of(other or short, FALSE_POSITIVES)
    )


def _threshold_of(harmless: Sequence[tuple[Document, Stretch]], share: float) -> int:
    highest: dict[str, float] = {}
    for one, best in harmless:
        words = " ".join(one.words[best.first : best.after])
        highest[words] = max(best.score, highest.get(words, best.score))
    return int(sorted(highest.values(), reverse=True)[int(share * len(harmless))]) + 1


def _print_found(documents: Sequence[Document], found: Sequence[Stretch], thresholds: Thresholds) -> None:
    hits: defaultdict[tuple[bool, str], list[bool]] = defaultdict(list)
    for one, best in zip(documents, found, strict=True):
        if not one.user:
            hits[one.attack, one.source].append(best.score > thresholds.of(len(one.passages)))
    for (attack, source), above in sorted(hits.items()):
        print(f"| {'attacks' if attack else 'harmless'} | {source} | {len(above)} | {sum(above) / len(above):.3f} |")


def main() -> None:
    """Train, print, and write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where `tuning` lies")
    parser.add_argument("--write", action="store_true", help="renew the weights of the product")
    chosen = parser.parse_args()
    documents = read_documents(chosen.folder / "tuning")
    found = score_unseen(documents)
    thresholds = thresholds_of(documents, found)
    _print_found(documents, found, thresholds)
    model = train(documents)._replace(thresholds=thresholds)
    print(f"{len(documents)} texts, {len(model.weights)} weights, thresholds {[one / SCALE for one in thresholds]}")
    if chosen.write:
        _WEIGHTS.write_text(model.written(), encoding="utf-8")


if __name__ == "__main__":
    main()
