"""The worst that hostile clients send, in small, against the running product: who is turned away and how, that other
clients are answered meanwhile, and that no worker dies. `script/attack` has all, at full size and with figures."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.attack.judging import tried, warm
from tests.attack.scene import Scene, scene

# Milliseconds. Machines that run tests are slow, and busy: this tells a worker that is blocked from one that is not.
MAX_WAIT = 5_000.0
# Seconds of each attack, and how many clients where it is not its usual number.
ATTACKS = {
    "trailer-authorization": (1.0, 0),
    "upgrade": (1.0, 0),
    "aborted": (1.0, 0),
    "trailer-endless": (2.0, 2),
    "one-byte-chunks": (1.0, 1),
    "leading-zeros": (1.0, 1),
    "chunk-extension": (1.0, 1),
    "sign-in-values": (2.0, 1),
    "guardrail-values": (2.0, 1),
    "oauth-tokens": (2.0, 6),
    "foreign-hosts": (1.0, 2),
    "idle-sockets": (1.0, 200),
    "bomb-answer": (1.0, 1),
    "slow-names": (3.0, 20),
    "kept-answers": (1.0, 50),
    "pipelined-health": (2.0, 2),
    "pipelined-answers": (2.0, 2),
    "batch-crowd": (10.0, 20),
    "storage": (5.0, 6),
    "stampede": (1.0, 100),
}
# Those that take longest, with their making ready.
LONG = {"batch-crowd", "storage", "stampede", "kept-answers", "foreign-hosts"}

pytestmark = [
    pytest.mark.stack,
    pytest.mark.timeout(240),
    pytest.mark.skipif(sys.platform != "linux", reason="who holds which connection is looked up in /proc"),
]


@pytest.fixture(scope="module")
def attacked() -> Iterator[Scene]:
    """A product of these tests' own, with two workers."""
    with scene() as ours:
        warm(ours, 1.0)
        yield ours


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in ATTACKS]
)
def test_an_attack_is_turned_away_and_nobody_else_notices(attacked: Scene, name: str) -> None:
    seconds, clients = ATTACKS[name]
    *_, outcome = tried(attacked, name, seconds, most_wait=MAX_WAIT, clients=clients, around=0.3)
    assert (outcome.problems, outcome.late) == ([], [])
    assert outcome.kept.answers
    assert bool(outcome.sign_in.answers and outcome.pictures.answers) == (name == "slow-names")
