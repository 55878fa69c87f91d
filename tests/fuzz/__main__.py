"""`script/fuzz TARGET …`: feeds readers of outside bytes for as long as wanted, and keeps what breaks them.

Guided by coverage where `atheris` is installed, else by chance alone. Crashes are made small and kept in
`tests/fuzz/corpus/<target>/`, where the test suite finds them.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
import traceback
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

GUIDED = "--guided"


def main() -> int:
    """Run what the command line asks for; return 1 when something broke."""
    words = argparse.ArgumentParser(prog="script/fuzz", description=__doc__.splitlines()[0])
    words.add_argument("targets", nargs="*", metavar="TARGET", help="all of them unless named")
    words.add_argument("--seconds", type=float, default=10.0, help="for each target")
    words.add_argument("--seed", default=None, help="repeats a run's draws")
    words.add_argument("--list", action="store_true", help="name the targets")
    words.add_argument("--plain", action="store_true", help="without coverage, also where atheris is installed")
    words.add_argument(GUIDED, metavar="FOLDER", help=argparse.SUPPRESS)
    asked = words.parse_args()
    _set_up(guided=asked.guided is not None)
    from tests.fuzz.target import all_targets

    known = all_targets()
    if asked.list:
        print("\n".join(known))
        return 0
    if unknown := set(asked.targets) - set(known):
        words.error(f"no target is called {', '.join(sorted(unknown))}; --list names them")
    chosen = [known[name] for name in asked.targets or known]
    if asked.guided:
        _guide(chosen[0], Path(asked.guided), asked.seconds, asked.seed)
    seed = asked.seed or str(random.SystemRandom().randrange(10**9))
    guided = find_spec("atheris") is not None and not asked.plain
    print(f"seed {seed}, {'guided by coverage' if guided else 'not guided by coverage'}")
    print("| target | executions | a second | crashes |\n|---|---:|---:|---|", flush=True)
    broken = 0
    for target in chosen:
        runs, kept = _guided(target, asked.seconds, seed) if guided else _plain(target, asked.seconds, seed)
        broken += len(kept)
        told = ", ".join(kept) or "none"
        print(f"| {target.name} | {runs} | {runs / asked.seconds:.0f} | {told} |", flush=True)
    return 1 if broken else 0


def _set_up(*, guided: bool) -> None:
    """Let the product be imported without stores; with its lines counted where the run is guided by them."""
    os.environ.setdefault("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    os.environ.setdefault("REDIS_URL", "redis://127.0.0.1:1/0")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_project.settings")
    home = TemporaryDirectory(prefix="fuzz-")
    globals()["_home"] = home
    os.environ.setdefault("GATEWAY_HOME", home.name)
    import django

    if guided:
        import atheris

        with atheris.instrument_imports(include=["apps", "gateway_project.http"], enable_loader_override=False):
            django.setup()
            from tests.fuzz.target import all_targets

            all_targets()
        return
    django.setup()


def _plain(target: Any, seconds: float, seed: str) -> tuple[int, list[str]]:
    """Draw inputs by chance; return how many, and the files of the crashes, one of each kind."""
    from tests.fuzz.fuzzing import inputs, quiet, smallest, tried

    until, runs, kinds, kept = time.monotonic() + seconds, 0, set(), []
    with quiet():
        for data in inputs(target, random.Random(f"{seed} {target.name}")):
            if time.monotonic() > until:
                break
            runs += 1
            crash = tried(target, data)
            if crash is not None and crash.kind not in kinds:
                kinds.add(crash.kind)
                crash = smallest(target, crash)
                kept.append(str(target.keep(crash.data)))
                traceback.print_exception(crash.error, limit=-4)
    return runs, kept


def _guided(target: Any, seconds: float, seed: str) -> tuple[int, list[str]]:
    """Let atheris look for new lines in a process of its own: it ends its process with the run."""
    from tests.fuzz.fuzzing import quiet, smallest, tried

    with TemporaryDirectory(prefix="fuzz-") as folder:
        begin, found = Path(folder, "corpus"), Path(folder, "found")
        for path in (begin, found):
            path.mkdir()
        for number, data in enumerate(target.seeds):
            (begin / str(number)).write_bytes(data)
        command = [sys.executable, "-m", "tests.fuzz", target.name, "--seconds", str(seconds), "--seed", seed]
        done = subprocess.run([*command, GUIDED, folder], capture_output=True, text=True, check=False)
        counts = [line for line in done.stderr.splitlines() if line.startswith("stat::number_of_executed_units:")]
        kept, kinds = [], set()
        with quiet():
            for path in sorted(found.iterdir()):
                crash = tried(target, path.read_bytes())
                if crash is not None and crash.kind not in kinds:
                    kinds.add(crash.kind)
                    crash = smallest(target, crash)
                    kept.append(str(target.keep(crash.data)))
                    traceback.print_exception(crash.error, limit=-4)
        if not counts:
            print(done.stderr[-2000:], file=sys.stderr)
        return int(counts[-1].split()[-1]) if counts else 0, kept


def _guide(target: Any, folder: Path, seconds: float, seed: str) -> None:
    """Run atheris on a target. Crashes are noted and passed over, so that others are found; never returns."""
    import atheris

    from tests.fuzz.fuzzing import tried
    from tests.fuzz.mutations import mutated

    kinds = set()
    seeds = target.seeds

    def one(data: bytes) -> None:
        crash = tried(target, data)
        if crash is not None and crash.kind not in kinds:
            kinds.add(crash.kind)
            Path(folder, "found", str(len(kinds))).write_bytes(data)

    def change(data: bytes, most: int, drawn: int) -> bytes:
        chance = random.Random(drawn)
        if chance.random() < 0.2:
            return bytes(atheris.Mutate(data, most))
        return mutated(data, target.shape, seeds, chance)[:most]

    number = str(random.Random(seed).randrange(1, 2**31))
    options = [f"-max_total_time={int(seconds)}", "-print_final_stats=1", "-max_len=49152", f"-seed={number}"]
    atheris.Setup([sys.argv[0], *options, "-rss_limit_mb=4096", str(folder / "corpus")], one, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
