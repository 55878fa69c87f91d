"""`script/bench detection DIR`: how well the rules find secrets and personal data in other projects' test material.

Recall on texts that hold something, and how many of the texts without are flagged, by source and family, with 95 %
Wilson intervals; beside it the same of detect-secrets and of presidio's expressions where they are installed. Recall on
secrets is printed twice: as the sources label them, and without texts whose values stand for a secret (`stand_ins`) or
whose detector looks for no credential by its own name.
`DIR` holds copies of the repositories in `detection_sources`, `detection_personal`, `detection_unseen`,
`detection_linters` and `detection_clean`.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from apps.guardrails.findings.scan_types import RuleSettings
from apps.guardrails.rules import system_rules
from apps.guardrails.text.scanned_text import ScannedText
from bench.detection_clean import CLEAN
from bench.detection_linters import LINTERS
from bench.detection_peers import peers_of
from bench.detection_personal import PERSONAL
from bench.detection_sources import NO_CREDENTIAL, SECRETS, Sample, read_samples
from bench.detection_unseen import UNSEEN
from bench.stand_ins import holds_only_stand_ins, stands_in

Finder = Callable[[str], list[str]]
_Z = 1.96
_ENOUGH = 16


def wilson(hits: int, count: int) -> str:
    """Return a share in per cent with its 95 % Wilson interval."""
    if not count:
        return "-"
    share, square = hits / count, _Z * _Z
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = _Z * math.sqrt(share * (1 - share) / count + square / (4 * count * count)) / (1 + square / count)
    return f"{share:.1%} ({max(0, middle - half):.1%} to {min(1, middle + half):.1%})"


def ours(rule: str) -> Finder:
    """Return a finder of the characters of one of our rules."""
    find = system_rules()[rule].find
    assert find is not None
    return lambda text: [text[span.start : span.end] for span in find(ScannedText(text), RuleSettings())]


def is_found(sample: Sample, found: list[str]) -> bool:
    """Tell whether one of the wanted values was found, at least its greater part; an empty one is anything.

    Some projects write a key and its number, or its host, as one value: the key is enough. Others write the
    expected value in small letters.
    """
    return any(
        value in one or (one in value and (len(one) * 2 >= len(value) or len(one) >= _ENOUGH))
        for value in map(str.lower, sample.wanted)
        for one in map(str.lower, found)
    )


class Outcome(NamedTuple):
    """The result for a text: whether it was found or flagged, and the same without values that stand for a secret;
    None where it holds nothing else."""

    sample: Sample
    hit: bool
    hit_without: bool | None


Results = dict[tuple[str, bool], list[Outcome]]


def without_stand_ins(sample: Sample) -> Sample | None:
    """Return a text with only those of the wanted values that stand for nothing; None where none is left.

    Findings of a detector whose name says that it looks for no credential are left out too.
    """
    if sample.family == NO_CREDENTIAL:
        return None
    kept = tuple(
        value
        for value in sample.wanted
        if not (stands_in(value, sample.text) if value else holds_only_stand_ins(sample.text))
    )
    return sample._replace(wanted=kept) if kept or not sample.wanted else None


def measure(samples: Iterable[Sample], finder: Finder) -> Results:
    """Return the results by source, and by whether something should be found."""
    results: Results = defaultdict(list)
    for sample in samples:
        found = finder(sample.text)
        rest = without_stand_ins(sample)
        hit = is_found(sample, found) if sample.wanted else bool(found)
        without = None if rest is None else is_found(rest, found) if rest.wanted else hit
        results[sample.source, bool(sample.wanted)].append(Outcome(sample, hit, without))
    return results


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--rules", nargs="*", default=["secrets", "pii_detection"])
    parser.add_argument("--splits", nargs="*", default=["tuning", "held-out", "held-out, unseen"])
    parser.add_argument("--failures", type=Path, help="write what was missed or mistaken of the tuning sources there")
    chosen = parser.parse_args()
    failures = []
    for rule in chosen.rules:
        finders = {"this gateway": ours(rule), **peers_of(rule)}
        for split in chosen.splits:
            samples = [
                sample
                for source in (*SECRETS, *PERSONAL, *UNSEEN, *LINTERS)
                if (source.rule, source.split) == (rule, split)
                for sample in read_samples(chosen.corpora, source)
            ]
            clean = [
                sample
                for source in CLEAN
                if source.split == split and source.rule in ("", rule)
                for sample in read_samples(chosen.corpora, source)
                if rule == "secrets" or "@" not in sample.text
            ]
            print(f"\n## {rule}, {split}")
            for name, finder in finders.items():
                results = measure([*samples, *clean], finder)
                show(name, results, twice=rule == "secrets")
                if split == "tuning" and name == "this gateway":
                    failures += [
                        {"rule": rule, "wanted": sample.wanted, "family": sample.family, "text": sample.text}
                        for (_, wanted), rows in results.items()
                        for sample, hit, _ in rows
                        if hit != wanted
                    ]
    if chosen.failures:
        chosen.failures.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in failures))


def show(name: str, results: Results, *, twice: bool) -> None:
    """Print a finder's figures; `twice`: also without values that stand for a secret."""
    print(f"\n{name}")
    for wanted, title in ((True, "found of texts with something"), (False, "flagged of texts with nothing")):
        by_source = {source: found for (source, kind), found in sorted(results.items()) if kind is wanted}
        whole = [outcome for found in by_source.values() for outcome in found]
        by_family: dict[str, list[bool]] = defaultdict(list)
        for outcome in whole:
            by_family[outcome.sample.family].append(outcome.hit)
        for source, found in by_source.items():
            print(f"  {title}: {source:48} {_figures(found, twice=twice and wanted)}")
        for family, hits in sorted(by_family.items(), key=lambda pair: -len(pair[1]))[:12]:
            print(f"    of these {family:46} {len(hits):6} {wilson(sum(hits), len(hits))}")
        print(f"  {title}: {'all':48} {_figures(whole, twice=twice and wanted)}", flush=True)


def _figures(outcomes: list[Outcome], *, twice: bool) -> str:
    hits = [outcome.hit for outcome in outcomes]
    said = f"{len(hits):6} {wilson(sum(hits), len(hits))}"
    rest = [outcome.hit_without for outcome in outcomes if outcome.hit_without is not None]
    return f"{said:34} without stand-ins {len(rest):6} {wilson(sum(rest), len(rest))}" if twice else said


if __name__ == "__main__":
    main()
