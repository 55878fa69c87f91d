"""Trains the word model of attacks: `python -m bench.attack_model FOLDER`, the one `script/guardrails-report` reads.

Reads what users say in those sources of `tuning` that `attack_corpora.toml` marks with `trained = true`: their licences
allow it; the project's own texts for training (`attack_texts`), and those that rules are known to be measured with.
`attack_learner` learns: the same texts make the same bytes.

Every text is scored by a model that has seen nothing of its source, nor of any source of the same `kin`. Thresholds are
where `FALSE_POSITIVES` of the harmless texts of others lie above them, and, where a program keeps something from its
users, `GUARDED_FALSE_POSITIVES`. The project's own texts do not count there: they were written to look like attacks.
The table shows the recall of every source. `--write` renews the weights of the product.
"""

from __future__ import annotations

import argparse
import json
import math
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from apps.guardrails.attacks import word_model
from apps.guardrails.attacks.word_model import windows_of
from apps.guardrails.text.scanned_text import ScannedText
from bench.attack_learner import Point, learn_weights
from bench.word_model import KINDS, SCALE, WordModel, features_of

# Shares of harmless texts above the thresholds of orders and of frames.
FALSE_POSITIVES, GUARDED_FALSE_POSITIVES = (0.005, 0.005), (0.04, 0.005)
_CORPORA = Path(__file__).with_name("attack_corpora.toml")
_TEXTS = Path(__file__).with_name("attack_texts")
# Texts of the project that are no longer unseen: ordinary texts, and the attacks that rules were made with.
_OWN_TEXTS = Path(__file__).parents[1] / "tests" / "guardrails" / "corpus"
_OWN, _PROJECT = ("ordinary", "prompt_injection", "jailbreak"), "project"
_WEIGHTS = Path(word_model.__file__).with_suffix(".tsv")
# A word says something of attacks where several texts of several authors have it.
_LEAST_TEXTS, _LEAST_SOURCES = 3, 2
# Cost of an error; weight of all attacks beside all harmless texts; how many texts of one author count in full.
_COST, _ATTACKS, _FULL = 0.3, 0.5, 300
_FOLDS = 12
# A weight below it moves no text; a third of all are.
_LEAST_WEIGHT = 20


Scores = tuple[float, float]


class Example(NamedTuple):
    """One labelled text: the features of each of its windows. The first one is trained on, all of them are scored."""

    source: str
    # Sources that share texts or frames have the same one.
    kin: str
    attack: bool = False
    kind: int = 0
    windows: tuple[tuple[str, ...], ...] = ((),)
    trained: bool = True
    # Whether it has a part in thresholds, where it is harmless.
    counts: bool = False


def read_examples(folder: Path) -> list[Example]:
    """Return what users say in the sources that the model is trained on or measured with."""
    examples: list[Example] = []
    for source in sorted(
        tomllib.loads(_CORPORA.read_text(encoding="utf-8"))["source"], key=lambda one: str(one["name"])
    ):
        if source.get("trained") or source.get("measured"):
            name, own = source["name"], bool(source.get("own"))
            like = Example(name, source.get("kin", name), trained=bool(source.get("trained")))
            like = like._replace(counts=not own and source.get("thresholds", True))
            examples += _read((_TEXTS if own else folder) / f"{name}.jsonl", like)
    for name in _OWN:
        like = Example(_PROJECT, _PROJECT, kind=KINDS.index("frames" if name == "jailbreak" else "orders"))
        examples += _read(_OWN_TEXTS / f"{name}.jsonl", like)
    return examples


def _read(path: Path, like: Example) -> Iterator[Example]:
    for row in map(json.loads, filter(None, path.read_text(encoding="utf-8").split("\n"))):
        if row.get("place") not in ("tool", "system"):
            text = ScannedText(row["text"]).normalized
            windows = tuple(tuple(sorted(features_of(text[start:end]))) for start, end in windows_of(len(text)))
            kind = KINDS.index("frames" if row.get("family") == "jailbreak" else "orders")
            yield like._replace(attack=row["attack"], kind=max(kind, like.kind), windows=windows)


def train(examples: Sequence[Example]) -> WordModel:
    """Return the model of these texts, without thresholds: each kind of attacks beside all harmless texts."""
    learned = [
        _train_kind([one for one in examples if not one.attack or one.kind == kind]) for kind in range(len(KINDS))
    ]
    (orders, orders_bias), (frames, frames_bias) = learned
    weights = {name: (orders.get(name, 0), frames.get(name, 0)) for name in sorted({*orders, *frames})}
    weights = {name: pair for name, pair in weights.items() if max(map(abs, pair)) >= _LEAST_WEIGHT}
    return WordModel(weights, (orders_bias, frames_bias))


def _train_kind(examples: Sequence[Example]) -> tuple[dict[str, int], int]:
    vocabulary = _vocabulary_of(examples)
    place_of = {feature: place for place, feature in enumerate(vocabulary)}
    counts = Counter((example.kin, example.attack) for example in examples)
    costs = [min(1.0, math.sqrt(_FULL / counts[example.kin, example.attack])) for example in examples]
    attacks = math.fsum(cost for example, cost in zip(examples, costs, strict=True) if example.attack)
    worth = _ATTACKS * (math.fsum(costs) - attacks) / max(1.0, attacks)
    points = [
        Point(
            [place_of[feature] for feature in example.windows[0] if feature in place_of],
            1 / math.sqrt(max(1, len(example.windows[0]))),
            example.attack,
            _COST * cost * (worth if example.attack else 1.0),
        )
        for example, cost in zip(examples, costs, strict=True)
    ]
    weights, bias = learn_weights(points, len(vocabulary))
    whole = {feature: round(SCALE * weight) for feature, weight in zip(vocabulary, weights, strict=True)}
    return whole, round(SCALE * bias)


def _vocabulary_of(examples: Iterable[Example]) -> list[str]:
    texts: Counter[str] = Counter()
    sources: defaultdict[str, set[str]] = defaultdict(set)
    for example in examples:
        texts.update(example.windows[0])
        for feature in example.windows[0]:
            sources[feature].add(example.kin)
    return sorted(
        name for name, count in texts.items() if count >= _LEAST_TEXTS and len(sources[name]) >= _LEAST_SOURCES
    )


def score_unseen(examples: Sequence[Example]) -> list[Scores]:
    """Return the scores of each text by a model that has seen nothing of its source."""
    fold_of = {name: place % _FOLDS for place, name in enumerate(sorted({example.kin for example in examples}))}
    scores: list[Scores] = [(0.0, 0.0)] * len(examples)
    for fold in range(_FOLDS):
        model = train([example for example in examples if example.trained and fold_of[example.kin] != fold])
        for index, example in enumerate(examples):
            if fold_of[example.kin] == fold:
                scores[index] = score_example(model, example)
    return scores


def score_example(model: WordModel, example: Example) -> Scores:
    """Return the highest scores of the windows of a text."""
    orders, frames = zip(*map(model.scores_of, example.windows), strict=True)
    return max(orders), max(frames)


def thresholds_of(
    examples: Sequence[Example], scores: Sequence[Scores], shares: Scores = FALSE_POSITIVES
) -> tuple[int, int]:
    """Return the scores that only these shares of the harmless texts of others have or surpass."""
    scored = zip(examples, scores, strict=True)
    harmless = [pair for example, pair in scored if example.counts and not example.attack]
    orders, frames = (
        math.ceil(sorted(column, reverse=True)[int(share * len(harmless))])
        for column, share in zip(zip(*harmless, strict=True), shares, strict=True)
    )
    return orders, frames


def _print_found(examples: Sequence[Example], scores: Sequence[Scores], levels: Sequence[tuple[int, int]]) -> None:
    found: defaultdict[tuple[bool, str], list[list[bool]]] = defaultdict(list)
    right, wrong = [0] * len(levels), [0] * len(levels)
    for example, pair in zip(examples, scores, strict=True):
        hits = [pair[0] > level[0] or pair[1] > level[1] for level in levels]
        found[example.attack, example.source].append(hits)
        if example.counts:
            counted = right if example.attack else wrong
            counted[:] = map(sum, zip(counted, hits, strict=True))
    for (attack, source), members in sorted(found.items()):
        shares = " | ".join(f"{sum(column) / len(members):.3f}" for column in zip(*members, strict=True))
        print(f"| {'attacks' if attack else 'harmless'} | {source} | {len(members)} | {shares} |")
    for level, attacks, harmless in zip(levels, right, wrong, strict=True):
        print(f"above {level}: {attacks} attacks, {harmless} harmless texts of others")


def main() -> None:
    """Train, print, and write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where `tuning` lies")
    parser.add_argument("--write", action="store_true", help="renew the weights of the product")
    chosen = parser.parse_args()
    examples = read_examples(chosen.folder / "tuning")
    scores = score_unseen(examples)
    levels = [thresholds_of(examples, scores, shares) for shares in (FALSE_POSITIVES, GUARDED_FALSE_POSITIVES)]
    _print_found(examples, scores, levels)
    model = train([example for example in examples if example.trained])
    model = model._replace(thresholds=levels[0], guarded=levels[1])
    print(f"{len(examples)} texts, {len(model.weights)} words and pairs")
    if chosen.write:
        _WEIGHTS.write_text(model.written(), encoding="utf-8")


if __name__ == "__main__":
    main()
