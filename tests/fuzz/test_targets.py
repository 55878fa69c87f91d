"""Every reader of outside bytes keeps its promises for input that no client would send: kept seeds, and a number of
inputs drawn from them. `FUZZ_RUNS` multiplies the number, `FUZZ_SEED` draws others; `script/fuzz` goes on for hours."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.fuzzing import Crash, inputs, quiet, tried
from tests.fuzz.known import KNOWN
from tests.fuzz.target import CORPUS, Target, all_targets

TARGETS = all_targets()
TIMES = float(os.environ.get("FUZZ_RUNS", "2"))
SEED = os.environ.get("FUZZ_SEED", "1")
KEPT = [
    pytest.param(
        target,
        path,
        id=f"{target.name}/{path.name}",
        marks=[pytest.mark.xfail(strict=True, reason=KNOWN[path.name])] if path.name in KNOWN else [],
    )
    for target in TARGETS.values()
    for path in target.kept
]


@pytest.mark.parametrize(("target", "path"), KEPT)
def test_what_once_broke_a_reader_does_so_no_more(target: Target, path: Path) -> None:
    crash = tried(target, path.read_bytes())
    if crash is not None:
        raise crash.error


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_reader_keeps_its_promises_whatever_it_is_fed(target: Target) -> None:
    known = {crash.kind for name in target.kept if name.name in KNOWN and (crash := tried(target, name.read_bytes()))}
    with quiet():
        crashes: list[Crash | None] = [
            tried(target, data)
            for data in islice(inputs(target, Random(f"{SEED} {target.name}")), int(target.runs * TIMES))
        ]
    for crash in crashes:
        if crash is not None and crash.kind not in known:
            raise crash.error


def test_every_kept_seed_belongs_to_a_target() -> None:
    assert {folder.name for folder in CORPUS.iterdir() if folder.is_dir()} - set(TARGETS) == set()
    assert set(KNOWN) - {path.name for target in TARGETS.values() for path in target.kept} == set()
