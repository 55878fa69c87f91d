"""`script/attack [name …]`: the real product, attacked, and what its other clients waited.

An attack after which only waits were too long is repeated: what else ran on the machine may have caused them, and what
the attack causes itself it causes each time. Every try has its line of the table, and one that held counts.

Exit 1 when anything was not held. Bounded in time, count and memory; against 127.0.0.1 only; ends what it started.
"""

from __future__ import annotations

import argparse
import sys

from tests.attack.hostile import attacks
from tests.attack.judging import HEADER, MAX_WAIT, tried, warm
from tests.attack.scene import scene


def main() -> int:
    """Carry out the attacks that are named, else all; return 1 when one was not held."""
    known = dict(attacks())
    words = argparse.ArgumentParser(prog="script/attack", description=__doc__.splitlines()[0])
    words.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(known)}; all unless named")
    words.add_argument("--seconds", type=float, default=8.0, help="for each attack")
    words.add_argument("--most-wait", type=float, default=MAX_WAIT, help="milliseconds that a bystander may wait")
    words.add_argument("--workers", type=int, default=2, help="web workers")
    words.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the product")
    asked = words.parse_args()
    if unknown := set(asked.names) - set(known):
        words.error(f"no attack is called {', '.join(sorted(unknown))}")
    settings = dict(one.split("=", 1) for one in asked.set)
    names = asked.names or list(known)
    if "calm" not in names:
        names = ["calm", *names]
    print(HEADER, flush=True)
    failed = []
    with scene(WEB_WORKERS=str(asked.workers), **settings) as ours:
        warm(ours)
        for name in names:
            for outcome in tried(ours, name, asked.seconds, most_wait=asked.most_wait):
                print(outcome.row(), flush=True)
            if outcome.problems or outcome.late:
                failed.append(name)
    print()
    for name in names:
        print(f"- **{name}**: {(known[name].__doc__ or '').strip()}")
    if "calm" in failed:
        print("\nBystanders waited too long with nobody attacking: this machine is too busy to judge by.")
    print(f"\n{len(names) - len(failed)} of {len(names)} held{': not ' + ', '.join(failed) if failed else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
