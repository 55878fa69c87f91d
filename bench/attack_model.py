"""Trains the word model of attacks: `python -m bench.attack_model FOLDER`, the one `script/guardrails-report` reads.

Reads what users say in those sources of `tuning` that `attack_corpora.toml` marks with `trained = true`: their licences
allow it; the project's own texts for training (`attack_texts`), and those that rules are known to be measured with.
`attack_learner` learns: the same texts make the same bytes.

Every text is scored by a model that has seen nothing of its source, nor of any source of the same `kin`. Thresholds are
where `FALSE_POSITIVES` of the harmless texts of others lie above them, and, where a program keeps something from its
users, `GUARDED_FALSE_POSITIVES`. The project's own texts do not count there: they were written to look like attacks.
The table printed says for every source what is found. `--write` renews the weights of the product.
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
from apps.guardrails.attacks.word_model import LONGEST, SCALE, WordModel, features_of
from apps.guardrails.text.scanned_text import ScannedText
from bench.attack_learner import Point, learn_weights

FALSE_POSITIVES, GUARDED_FALSE_POSITIVES = 0.003, 0.025
_CORPORA = Path(__file__).with_name("attack_corpora.toml")
_TEXTS = Path(__file__).with_name("attack_texts")
# Texts of the project that are no longer unseen: what is ordinary, and the attacks that rules were made with.
_OWN_TEXTS = Path(__file__).parents[1] / "tests" / "guardrails" / "corpus"
_OWN, _PROJECT = ("ordinary", "prompt_injection", "jailbreak"), "project"
_WEIGHTS = Path(word_model.__file__).with_suffix(".tsv")
# A word says something of attacks where several texts of several authors have it.
_LEAST_TEXTS, _LEAST_SOURCES = 3, 2
# What an error costs; what all attacks count beside all harmless texts; how many texts of one author count in full.
_COST, _ATTACKS, _FULL = 0.3, 0.5, 300
_FOLDS = 12


class Example(NamedTuple):
    """One labelled text: its features, and by how much each counts, so that long texts count as much as short ones."""

    source: str
    # Sources that share texts or frames have the same one.
    kin: str
    attack: bool = False
    features: tuple[str, ...] = ()
    share: float = 1.0
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
        examples += _read(_OWN_TEXTS / f"{name}.jsonl", Example(_PROJECT, _PROJECT))
    return examples


def _read(path: Path, like: Example) -> Iterator[Example]:
    for row in map(json.loads, filter(None, path.read_text(encoding="utf-8").split("\n"))):
        if row.get("place") not in ("tool", "system"):
            features = features_of(ScannedText(row["text"][: 2 * LONGEST]).normalized[:LONGEST])
            share = 1 / math.sqrt(max(1, len(features)))
            yield like._replace(attack=row["attack"], features=tuple(sorted(features)), share=share)


def train(examples: Sequence[Example]) -> WordModel:
    """Return the model of these texts, without a threshold."""
    vocabulary = _vocabulary_of(examples)
    place_of = {feature: place for place, feature in enumerate(vocabulary)}
    counts = Counter((example.kin, example.attack) for example in examples)
    costs = [min(1.0, math.sqrt(_FULL / counts[example.kin, example.attack])) for example in examples]
    attacks = math.fsum(cost for example, cost in zip(examples, costs, strict=True) if example.attack)
    worth = _ATTACKS * (math.fsum(costs) - attacks) / max(1.0, attacks)
    points = [
        Point(
            [place_of[feature] for feature in example.features if feature in place_of],
            example.share,
            example.attack,
            _COST * cost * (worth if example.attack else 1.0),
        )
        for example, cost in zip(examples, costs, strict=True)
    ]
    learned, bias = learn_weights(points, len(vocabulary))
    weights = {feature: round(SCALE * weight) for feature, weight in zip(vocabulary, learned, strict=True)}
    return WordModel({name: weight for name, weight in weights.items() if weight}, round(SCALE * bias), 0)


def _vocabulary_of(examples: Iterable[Example]) -> list[str]:
    texts: Counter[str] = Counter()
    sources: defaultdict[str, set[str]] = defaultdict(set)
    for example in examples:
        texts.update(example.features)
        for feature in example.features:
            sources[feature].add(example.kin)
    return sorted(
        name for name, count in texts.items() if count >= _LEAST_TEXTS and len(sources[name]) >= _LEAST_SOURCES
    )


def score_unseen(examples: Sequence[Example]) -> list[float]:
    """Return the score of each text by a model that has seen nothing of its source."""
    fold_of = {name: place % _FOLDS for place, name in enumerate(sorted({example.kin for example in examples}))}
    scores = [0.0] * len(examples)
    for fold in range(_FOLDS):
        model = train([example for example in examples if example.trained and fold_of[example.kin] != fold])
        for index, example in enumerate(examples):
            if fold_of[example.kin] == fold:
                scores[index] = score_example(model, example)
    return scores


def score_example(model: WordModel, example: Example) -> float:
    """Return the score of a text whose features are known."""
    return model.bias + sum(model.weights.get(feature, 0) for feature in example.features) * example.share


def threshold_of(examples: Sequence[Example], scores: Sequence[float], share: float = FALSE_POSITIVES) -> int:
    """Return the score that only this share of the harmless texts of others have or surpass."""
    scored = zip(examples, scores, strict=True)
    harmless = [score for example, score in scored if example.counts and not example.attack]
    return math.ceil(sorted(harmless, reverse=True)[int(share * len(harmless))])


def _print_found(examples: Sequence[Example], scores: Sequence[float], thresholds: Sequence[int]) -> None:
    found: defaultdict[tuple[bool, str], list[float]] = defaultdict(list)
    for example, score in zip(examples, scores, strict=True):
        found[example.attack, example.source].append(score)
    for (attack, source), members in sorted(found.items()):
        shares = (sum(score > threshold for score in members) / len(members) for threshold in thresholds)
        columns = " | ".join(f"{share:.3f}" for share in shares)
        print(f"| {'attacks' if attack else 'harmless'} | {source} | {len(members)} | {columns} |")


def main() -> None:
    """Train, print, and write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where `tuning` lies")
    parser.add_argument("--write", action="store_true", help="renew the weights of the product")
    chosen = parser.parse_args()
    examples = read_examples(chosen.folder / "tuning")
    scores = score_unseen(examples)
    threshold, guarded = (threshold_of(examples, scores, share) for share in (FALSE_POSITIVES, GUARDED_FALSE_POSITIVES))
    _print_found(examples, scores, (threshold, guarded))
    model = train([example for example in examples if example.trained])
    model = model._replace(threshold=threshold, guarded=guarded)
    print(f"{len(examples)} texts, {len(model.weights)} weights, thresholds {threshold / SCALE}, {guarded / SCALE}")
    if chosen.write:
        _WEIGHTS.write_text(model.written(), encoding="utf-8")


if __name__ == "__main__":
    main()
