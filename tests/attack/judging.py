"""One attack carried out, what came of it, and whether it was held. A table of attacks: what each may get."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import requests

from tests.attack.bystanders import Bystanders, Waits, workers_of
from tests.attack.scene import Memory, Scene
from tests.stack.product import PROJECT, Product

# How often an attack is tried until no wait was too long.
TRIES = 3
# Milliseconds that another client's small request may take during an attack.
MAX_WAIT = 200.0
# Milliseconds that a sign-in may take then: its password alone takes a third of a second of a processor.
MAX_SIGN_IN = 2_000.0
# Megabytes of a worker at which an attack is broken off: the machine is to live on.
MAX_MEMORY = 4_000
# Megabytes by which the store of reservations may grow while answers are kept: records on their way.
MAX_MONEY_GROWTH = 10
# Goodput under twice the load: per cent of what can be answered. A refusal may take so many milliseconds.
MIN_GOODPUT, MAX_REFUSAL = 95, 50
# The workers' time for a refusal, in per cent of a good request.
MAX_REFUSAL_COST = 100
# Attacks in which no turn of an event loop may last longer than a bystander may wait.
_LOOPS_JUDGED = {"pipelined-health", "pipelined-answers"}
# Milliseconds that another tenant's batch of one line may take beside a crowd of batches: it waits for the clock, which
# wakes workers every five seconds, for a piece of the crowd, and for a line. MB that stay without credits.
MAX_BATCH, MAX_STORED = 10_000, 100
_TURNED_AWAY = {"400", "401", "408", "413", "429", "431", "503", "closed", "refused", "waiting"}
# The results that an attack may get; anything else is a failure. Figures beside statuses are not judged here.
MAY_GET: dict[str, set[str]] = {
    "sign-in-values": {"400", "408", "413", "429", "503", "closed"},
    # A machine that is quick enough asks the sign-in more often than it may be asked.
    "trailer-endless": {"400", "401", "408", "413", "429", "431", "closed"},
    "trailer-authorization": {"400", "401"},
    "guardrail-values": {"200", "400", "413", "429", "503"},
    "slow-bodies": {"400", "408", "429", "503", "closed"},
    # One that is younger than the time for a first byte may still wait.
    "idle-sockets": {"408", "closed", "refused", "waiting"},
    "one-byte-chunks": _TURNED_AWAY,
    "leading-zeros": _TURNED_AWAY,
    "chunk-extension": _TURNED_AWAY,
    "emoji": {"200", "400", "413", "429", "503"},
    "escapes": {"200", "400", "413", "429", "503"},
    "metadata-keys": {"200", "400", "413", "429", "503"},
    "upgrade": {"200"},
    "aborted": {"left"},
    "oauth-tokens": {"400", "401", "429"},
    "foreign-hosts": {"200", "302", "400", "401", "404"},
    "bomb-answer": {"502", "503"},
    "large-answer": {"200", "502", "503"},
    "slow-names": {"400", "429"},
    "kept-answers": {"200", "429", "503"},
    "pipelined-health": {"200", "waiting"},
    "pipelined-answers": {"200", "204", "301", "302", "401", "403", "404", "503", "waiting"},
    "refusals": {"200", "400", "401", "403", "404", "405", "415"},
    "batch-crowd": {"200", "429"},
    "storage": {"200", "400"},
    "stampede": {"200", "429", "503"},
    "overload": {"200", "429", "503"},
    "calm": set(),
}
_TURNS = re.compile(r'^gateway_event_loop_longest_turn_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE)


@dataclass
class Outcome:
    """The outcome of an attack. `problems` lists the broken promises in words, `late` those that are about time: what
    else runs on the machine can break them too."""

    name: str
    got: Counter[str]
    kept: Waits
    fresh: Waits
    management: Waits
    machine: Waits
    memory: tuple[int, int, int]
    tracebacks: int
    # The longest turn of a worker's event loop, in milliseconds, rounded up to a bucket of its metric.
    turn: float
    problems: list[str]
    late: list[str]
    # Only beside `slow-names`.
    sign_in: Waits
    pictures: Waits

    def row(self) -> str:
        """Return its line of the table."""
        got = ", ".join(f"{number} x {what}" for what, number in self.got.items() if not _figure(what))
        figures = "; ".join(f"{what} {number}" for what, number in self.got.items() if _figure(what))
        words = [
            *(self.name, "; ".join(filter(None, (got, figures))) or "-"),
            *(f"{self.kept.worst:,.0f}", f"{self.kept.median:,.0f}"),
            *(f"{waits.worst:,.0f}" for waits in (self.management, self.fresh, self.machine)),
            f"{self.turn:,.0f}",
            " / ".join(f"{size:,}" for size in self.memory),
            "; ".join(self.problems + self.late) or "held",
        ]
        return f"| {' | '.join(words)} |"


_COLUMNS = (
    *("attack", "what it got", "worst wait of a bystander, ms", "p50, ms", "in management, ms"),
    *(
        "on a new connection, ms",
        "the machine alone, ms",
        "longest turn of a loop at most, ms",
        "largest worker before / most / after, MB",
        "verdict",
    ),
)
HEADER = f"| {' | '.join(_COLUMNS)} |\n|---|---|{'---:|' * 7}---|"


def carried_out(
    scene: Scene, name: str, seconds: float, *, most_wait: float = MAX_WAIT, clients: int = 0, around: float = 1.0
) -> Outcome:
    """Carry out an attack for so many seconds, with bystanders before, beside and for `around` seconds after it."""
    product = scene.product
    before, tracebacks, turns = workers_of(product), scene.tracebacks(), loop_turns(product)
    memory = Memory(product)
    elsewhere = scene.elsewhere if name == "slow-names" else ""
    # Where processor time is measured, the product has no other clients.
    quiet = name == "refusals"
    own = product.demo
    bystanders = Bystanders(product, own["apiKey"], own["sessionToken"], elsewhere, quiet=quiet)
    time.sleep(around / 2)
    task: dict[str, Any] = {"name": name, "port": product.port, "seconds": seconds, "clients": clients}
    task["workers"] = before
    task |= {"token": scene.token, "session": scene.session}
    task |= {"keeper": scene.keeper, "other_keeper": scene.other_keeper, "penniless": scene.penniless}
    if name == "stampede":
        task["cold"] = [scene.new_key()]
    money = scene.money_bytes()
    got, problems = _attack(task, seconds, memory)
    time.sleep(around)
    bystanders.stop()
    memory.stopping.set()
    time.sleep(around)
    after = workers_of(product)
    outcome = Outcome(
        name,
        got,
        bystanders.kept,
        bystanders.fresh,
        bystanders.management,
        bystanders.machine,
        (memory.before, memory.peak, memory.now()),
        scene.tracebacks() - tracebacks,
        longest_turn(turns, loop_turns(product)),
        problems,
        [],
        bystanders.sign_in,
        bystanders.pictures,
    )
    if before != after:
        problems.append(f"{len(set(before) - set(after))} worker(s) died")
    if name == "kept-answers" and (grown := (scene.money_bytes() - money) // 1024**2) > MAX_MONEY_GROWTH:
        problems.append(f"the store of reservations grew by {grown} MB")
    _judge(outcome, most_wait)
    return outcome


def tried(scene: Scene, name: str, seconds: float, **how: Any) -> Iterator[Outcome]:
    """Carry out an attack as `carried_out` does, again while only waits were too long; the last outcome counts.

    Other processes of the machine can make waits long too, but an attack that does makes them long each time.
    """
    for _ in range(TRIES):
        outcome = carried_out(scene, name, seconds, **how)
        yield outcome
        if outcome.problems or not outcome.late:
            return


def warm(scene: Scene, seconds: float = 3.0) -> None:
    """Let bystanders ask for a while: the first requests of a worker are no measure of the others."""
    bystanders = Bystanders(scene.product, scene.product.demo["apiKey"], scene.product.demo["sessionToken"])
    time.sleep(seconds)
    bystanders.stop()


def loop_turns(product: Product) -> Counter[float]:
    """Return how many of the event loops' longest turns lasted at most so many milliseconds, by that bound."""
    told = requests.get(f"{product.url}/metrics", timeout=20).text
    return Counter({float(bound) * 1000: int(float(count)) for bound, count in _TURNS.findall(told)})


def longest_turn(before: Counter[float], after: Counter[float]) -> float:
    """Return the least bound, in milliseconds, that all turns between two looks kept to."""
    new = after - before
    return min((bound for bound, count in new.items() if count == max(new.values())), default=0.0)


def _attack(task: dict[str, Any], seconds: float, memory: Memory) -> tuple[Counter[str], list[str]]:
    """Run the attacker in a process of its own; break off when it takes too long or the product too much memory."""
    command = [sys.executable, "-m", "tests.attack.hostile"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": PROJECT, "text": True}
    process = subprocess.Popen(command, **pipes)
    assert process.stdin is not None
    process.stdin.write(json.dumps(task))
    process.stdin.close()
    until, problems = time.monotonic() + seconds * 4 + 90, list[str]()
    while process.poll() is None:
        if time.monotonic() > until:
            problems.append("the attack did not end")
        elif memory.peak > MAX_MEMORY:
            problems.append(f"broken off at {memory.peak:,} MB")
        else:
            time.sleep(0.05)
            continue
        process.kill()
        process.wait(10)
    assert process.stdout is not None
    said = process.stdout.read()
    process.stdout.close()
    return Counter(json.loads(said) if said else {}), problems


def _judge(outcome: Outcome, most_wait: float) -> None:
    """Add each broken promise to the problems, or to the late ones."""
    problems, late, got = outcome.problems, outcome.late, outcome.got
    kinds = [("", outcome.kept, most_wait), (" in management", outcome.management, most_wait)]
    kinds += [(" anew", outcome.fresh, most_wait), (" for a picture", outcome.pictures, most_wait)]
    kinds.append((" to sign in", outcome.sign_in, max(most_wait, MAX_SIGN_IN)))
    for kind, waits, most in kinds:
        if waits.worst > most:
            late.append(f"a bystander waited {waits.worst:,.0f} ms{kind}")
        # Those who are turned away at once, and told when to come again, are served as promised under overload.
        refused = Counter(waits.refused)
        if outcome.name in {"overload", "stampede"}:
            del refused["503"]
        if refused:
            problems.append(f"bystanders{kind} got {', '.join(f'{n} x {what}' for what, n in refused.items())}")
    if wrong := {what for what in got if not _figure(what)} - MAY_GET[outcome.name]:
        problems.append(f"got {', '.join(sorted(wrong))}")
    if outcome.tracebacks:
        problems.append(f"{outcome.tracebacks} tracebacks in the log")
    if outcome.name in _LOOPS_JUDGED and outcome.turn > most_wait:
        late.append(f"a turn of the event loop took up to {outcome.turn:,.0f} ms")
    if outcome.name == "refusals":
        dear = {what: share for what, share in got.items() if _figure(what) and share > MAX_REFUSAL_COST}
        late.extend(
            f"{what.removesuffix(' per cent')} took {share} % of a good request" for what, share in dear.items()
        )
    if outcome.name == "batch-crowd" and got["another's batch, beside it, ms"] > MAX_BATCH:
        late.append("another's batch took too long")
    if outcome.name == "storage" and got["stored, MB"] > MAX_STORED:
        problems.append(f"{got['stored, MB']:,} MB stay without credits")
    if outcome.name == "overload":
        # A short run is inexact: only a shortfall of more than two standard errors counts.
        if got["goodput per cent"] + 2 * got["its standard error per cent"] < MIN_GOODPUT:
            late.append(f"goodput {got['goodput per cent']} per cent of capacity")
        if got["refused p99 ms"] > MAX_REFUSAL:
            late.append(f"refusals took {got['refused p99 ms']} ms")


def _figure(what: str) -> bool:
    return what.endswith((" ms", " MB", " a second", " per cent"))
