"""Trains the word model of attacks: `python -m bench.attack_model FOLDER`, the one `script/guardrails-report` reads.

Reads what users say in those sources of `tuning` that `attack_corpora.toml` marks with `trained = true`: their licences
allow it; and the project's own texts that rules are known to be measured with. The learning is FTRL-proximal (McMahan
2013) of a logistic model: most weights are nothing, the rest is small. Pure Python and one seed: the same texts make
the same bytes.

The threshold is where `FALSE_POSITIVES` of the harmless texts of others lie above it, each scored by a model that has
seen nothing of its source. The project's own were written to look like attacks: of these, more do. The table printed
says so for every source. `--write` renews the weights of the product.

Where a program keeps something from its users, the threshold is lower: there `GUARDED_FALSE_POSITIVES` lie above it of
the harmless texts in the sources marked `threshold = true`, which no model is trained with.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from apps.guardrails.attacks import word_model
from apps.guardrails.attacks.word_model import LONGEST, SCALE, WordModel, features_of
from apps.guardrails.text.scanned_text import ScannedText

FALSE_POSITIVES, GUARDED_FALSE_POSITIVES = 0.003, 0.02
_CORPORA = Path(__file__).with_name("attack_corpora.toml")
# Texts of the project that are no longer unseen: what is ordinary, and the attacks that rules were made with.
_OWN_TEXTS = Path(__file__).parents[1] / "tests" / "guardrails" / "corpus"
_OWN, _PROJECT = ("ordinary", "prompt_injection", "jailbreak"), "project"
_WEIGHTS = Path(word_model.__file__).with_suffix(".tsv")
# A word says something of attacks where several texts of several authors have it.
_LEAST_TEXTS, _LEAST_SOURCES = 3, 2
_RATE, _SMOOTHING, _L1, _L2 = 0.3, 1.0, 1.0, 1.0
_BIAS_RATE = 0.01
_ROUNDS, _SEED, _FOLDS = 6, 1, 8


class Example(NamedTuple):
    """One labelled text: its features, and by how much each counts, so that long texts count as much as short ones."""

    source: str
    attack: bool
    features: tuple[str, ...]
    share: float


def read_examples(folder: Path, mark: str = "trained") -> list[Example]:
    """Return what users say in the sources with this mark; the project's own are among those that are trained on."""
    sources = tomllib.loads(_CORPORA.read_text(encoding="utf-8"))["source"]
    names = sorted(source["name"] for source in sources if source.get(mark))
    read = [(name, folder / f"{name}.jsonl") for name in names]
    if mark == "trained":
        read += [(_PROJECT, _OWN_TEXTS / f"{name}.jsonl") for name in _OWN]
    return [
        _example_of(name, row["attack"], row["text"])
        for name, path in read
        for row in map(json.loads, filter(None, path.read_text(encoding="utf-8").split("\n")))
        if row.get("place") not in ("tool", "system")
    ]


def _example_of(source: str, attack: bool, text: str) -> Example:
    features = features_of(ScannedText(text[: 2 * LONGEST]).normalized[:LONGEST])
    return Example(source, attack, tuple(sorted(features)), 1 / math.sqrt(max(1, len(features))))


def train(examples: Sequence[Example]) -> WordModel:
    """Return the model of these texts, without a threshold."""
    vocabulary = _vocabulary_of(examples)
    kept = [[feature for feature in example.features if feature in vocabulary] for example in examples]
    learner = Learner()
    attacks = sum(example.attack for example in examples)
    worth = (len(examples) - attacks) / max(1, attacks)
    order, shuffler = list(range(len(examples))), random.Random(_SEED)
    for _ in range(_ROUNDS):
        shuffler.shuffle(order)
        for index in order:
            example = examples[index]
            learner.learn(kept[index], example.share, example.attack, worth if example.attack else 1.0)
    weights = {feature: round(SCALE * learner.weight_of(feature)) for feature in sorted(vocabulary)}
    return WordModel({name: weight for name, weight in weights.items() if weight}, round(SCALE * learner.bias), 0)


def _vocabulary_of(examples: Iterable[Example]) -> set[str]:
    texts: Counter[str] = Counter()
    sources: defaultdict[str, set[str]] = defaultdict(set)
    for example in examples:
        texts.update(example.features)
        for feature in example.features:
            sources[feature].add(example.source)
    return {name for name, count in texts.items() if count >= _LEAST_TEXTS and len(sources[name]) >= _LEAST_SOURCES}


class Learner:
    """Logistic regression by FTRL-proximal, one text at a time."""

    def __init__(self, l1: float = _L1, l2: float = _L2) -> None:
        self.bias = 0.0
        self._l1, self._l2 = l1, l2
        self._gradients: defaultdict[str, float] = defaultdict(float)
        self._squares: defaultdict[str, float] = defaultdict(float)

    def weight_of(self, feature: str) -> float:
        """Return the weight that a feature has by now; most have none."""
        gradient = self._gradients[feature]
        if abs(gradient) <= self._l1:
            return 0.0
        return (math.copysign(self._l1, gradient) - gradient) / (
            (_SMOOTHING + math.sqrt(self._squares[feature])) / _RATE + self._l2
        )

    def learn(self, features: Sequence[str], share: float, attack: bool, worth: float) -> None:
        """Learn from one text, of which each feature counts by `share` and the label by `worth`."""
        weights = [self.weight_of(feature) for feature in features]
        score = min(30.0, max(-30.0, self.bias + share * sum(weights)))
        slope = (1 / (1 + math.exp(-score)) - attack) * worth
        self.bias -= _BIAS_RATE * slope
        step = slope * share
        for feature, weight in zip(features, weights, strict=True):
            squares = self._squares[feature]
            change = (math.sqrt(squares + step * step) - math.sqrt(squares)) / _RATE
            self._gradients[feature] += step - change * weight
            self._squares[feature] = squares + step * step


def score_unseen(examples: Sequence[Example]) -> list[float]:
    """Return the score of each text by a model that has seen nothing of its source."""
    fold_of = {name: place % _FOLDS for place, name in enumerate(sorted({example.source for example in examples}))}
    scores = [0.0] * len(examples)
    for fold in range(_FOLDS):
        model = train([example for example in examples if fold_of[example.source] != fold])
        for index, example in enumerate(examples):
            if fold_of[example.source] == fold:
                scores[index] = score_example(model, example)
    return scores


def score_example(model: WordModel, example: Example) -> float:
    """Return the score of a text whose features are known."""
    return model.bias + sum(model.weights.get(feature, 0) for feature in example.features) * example.share


def threshold_of(examples: Sequence[Example], scores: Sequence[float], share: float = FALSE_POSITIVES) -> int:
    """Return the score that only this share of the harmless texts of others have or surpass."""
    scored = zip(examples, scores, strict=True)
    harmless = [score for example, score in scored if not example.attack and example.source != _PROJECT]
    return math.ceil(sorted(harmless, reverse=True)[int(share * len(harmless))])


def _print_found(examples: Sequence[Example], scores: Sequence[float], threshold: int) -> None:
    found: defaultdict[tuple[bool, str], list[bool]] = defaultdict(list)
    for example, score in zip(examples, scores, strict=True):
        found[example.attack, example.source].append(score > threshold)
    for (attack, source), hits in sorted(found.items()):
        print(f"| {'attacks' if attack else 'harmless'} | {source} | {len(hits)} | {sum(hits) / len(hits):.3f} |")


def main() -> None:
    """Train, print, and write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where `tuning` lies")
    parser.add_argument("--write", action="store_true", help="renew the weights of the product")
    chosen = parser.parse_args()
    examples = read_examples(chosen.folder / "tuning")
    scores = score_unseen(examples)
    threshold = threshold_of(examples, scores)
    _print_found(examples, scores, threshold)
    model = train(examples)
    unseen = read_examples(chosen.folder / "tuning", "threshold")
    guarded = threshold_of(unseen, [score_example(model, one) for one in unseen], GUARDED_FALSE_POSITIVES)
    model = model._replace(threshold=threshold, guarded=guarded)
    print(f"{len(examples)} texts, {len(model.weights)} weights, thresholds {threshold / SCALE}, {guarded / SCALE}")
    if chosen.write:
        _WEIGHTS.write_text(model.written(), encoding="utf-8")


if __name__ == "__main__":
    main()
