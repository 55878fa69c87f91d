"""One attack carried out, what came of it, and whether it was held. A table of attacks: what each may get.

Knows the promises of docs/security.md. Must never know how an attack is made.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.attack.bystanders import Bystanders, Waits, workers_of
from tests.attack.scene import Memory, Scene
from tests.stack.product import PROJECT

# Milliseconds that another client's small request may take while anybody attacks.
MOST_WAIT = 200.0
# Megabytes of a worker at which an attack is broken off: the machine is to live on.
MOST_MEMORY = 4_000
# Goodput under twice the load: per cent of what can be answered. A refusal may take so many milliseconds.
LEAST_GOODPUT, MOST_REFUSAL = 95, 50
# Milliseconds that another tenant's batch of one line may take beside a crowd of batches: it waits for the clock, which
# wakes workers every five seconds, for a piece of the crowd, and for a line. MB that stay without credits.
MOST_BATCH, MOST_STORED = 10_000, 100
_TURNED_AWAY = {"400", "401", "408", "413", "429", "431", "503", "closed", "refused", "waiting"}
# What may come of an attack; anything else is a failure. Figures beside statuses are not judged here.
MAY_GET: dict[str, set[str]] = {
    "sign-in-values": {"400", "408", "413", "429", "503", "closed"},
    "trailer-endless": {"400", "401", "408", "413", "431", "closed"},
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
    "bomb-answer": {"502", "503"},
    "large-answer": {"200", "502", "503"},
    "batch-crowd": {"200", "429"},
    "storage": {"200", "400"},
    "stampede": {"200", "429", "503"},
    "overload": {"200", "429", "503"},
    "calm": set(),
}


@dataclass
class Outcome:
    """What came of an attack. `problems` is what was not held, in words."""

    name: str
    got: Counter[str]
    kept: Waits
    fresh: Waits
    management: Waits
    machine: Waits
    memory: tuple[int, int, int]
    tracebacks: int
    problems: list[str]

    def row(self) -> str:
        """Return its line of the table."""
        got = ", ".join(f"{number} x {what}" for what, number in self.got.items() if not _figure(what))
        figures = "; ".join(f"{what} {number}" for what, number in self.got.items() if _figure(what))
        words = [
            *(self.name, "; ".join(filter(None, (got, figures))) or "-"),
            *(f"{self.kept.worst:,.0f}", f"{self.kept.median:,.0f}"),
            *(f"{waits.worst:,.0f}" for waits in (self.management, self.fresh, self.machine)),
            " / ".join(f"{size:,}" for size in self.memory),
            "; ".join(self.problems) or "held",
        ]
        return f"| {' | '.join(words)} |"


_COLUMNS = (
    *("attack", "what it got", "worst wait of a bystander, ms", "p50, ms", "in management, ms"),
    *("on a new connection, ms", "the machine alone, ms", "largest worker before / most / after, MB", "verdict"),
)
HEADER = f"| {' | '.join(_COLUMNS)} |\n|---|---|{'---:|' * 6}---|"


def carried_out(
    scene: Scene, name: str, seconds: float, *, most_wait: float = MOST_WAIT, clients: int = 0, around: float = 1.0
) -> Outcome:
    """Carry out an attack for so many seconds, with bystanders before, beside and for `around` seconds after it."""
    product = scene.product
    before, tracebacks = workers_of(product), scene.tracebacks()
    memory = Memory(product)
    bystanders = Bystanders(product, product.demo["apiKey"], product.demo["sessionToken"])
    time.sleep(around / 2)
    task: dict[str, Any] = {"name": name, "port": product.port, "seconds": seconds, "clients": clients}
    task |= {"token": scene.token, "session": scene.session}
    task |= {"bystander": product.demo["apiKey"], "penniless": scene.penniless}
    if name == "stampede":
        task["cold"] = [scene.new_key()]
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
        problems,
    )
    if before != after:
        problems.append(f"{len(set(before) - set(after))} worker(s) died")
    _judge(outcome, most_wait)
    return outcome


def warm(scene: Scene, seconds: float = 3.0) -> None:
    """Let bystanders ask for a while: the first requests of a worker are no measure of the others."""
    bystanders = Bystanders(scene.product, scene.product.demo["apiKey"], scene.product.demo["sessionToken"])
    time.sleep(seconds)
    bystanders.stop()


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
        elif memory.peak > MOST_MEMORY:
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
    """Add to the problems what was not held."""
    problems, got = outcome.problems, outcome.got
    for kind, waits in (("", outcome.kept), (" in management", outcome.management), (" anew", outcome.fresh)):
        if waits.worst > most_wait:
            problems.append(f"a bystander waited {waits.worst:,.0f} ms{kind}")
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
    if outcome.name == "batch-crowd" and got["another's batch, beside it, ms"] > MOST_BATCH:
        problems.append("another's batch took too long")
    if outcome.name == "storage" and got["stored, MB"] > MOST_STORED:
        problems.append(f"{got['stored, MB']:,} MB stay without credits")
    if outcome.name == "overload":
        # A short run is inexact: what is not held is what is beyond doubt, so by two standard errors.
        if got["goodput per cent"] + 2 * got["its standard error per cent"] < LEAST_GOODPUT:
            problems.append(f"goodput {got['goodput per cent']} per cent of capacity")
        if got["refused p99 ms"] > MOST_REFUSAL:
            problems.append(f"refusals took {got['refused p99 ms']} ms")


def _figure(what: str) -> bool:
    return what.endswith((" ms", " MB", " a second", " per cent"))
