"""Pieces of work done again and again, each time with another call to a store or a provider that fails.

After each the product recovers as in production: heartbeats, the replay of the spool, retransmission, the settler. Then
every invariant must hold, and nothing may be held any more.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count
from typing import Any, Final
from uuid import uuid4

import gevent
import pytest
from django.db import DatabaseError, InterfaceError, connection
from redis.exceptions import RedisError

from apps.billing import balance_copies, ledger, worker_leases
from apps.billing.balance_copies import LedgerWatch
from apps.billing.worker_leases import worker_name
from apps.catalog.catalog_cache import process_copy
from apps.gateway.access import credentials, policy
from apps.gateway.admission import offline_accounts, offline_admission
from apps.gateway.routing import circuit_breaker
from apps.gateway.settlement import outbox
from apps.gateway.settlement.outbox import BUFFER, OutboxReader
from apps.gateway.settlement.record_backlog import BACKLOG
from apps.gateway.settlement.retransmission import Retransmission
from apps.gateway.settlement.settle import settle
from apps.gateway.upstream import connection_pool
from apps.kernel.errors import ApiError
from apps.kernel.postgres.database import CIRCUIT_BREAKER
from apps.kernel.valkey.redis import DATA_NAMES
from apps.kernel.valkey.redis import client as valkey
from apps.organizations.models import Organization
from tests.proofs import invariants
from tests.proofs.fault_injection import Fault, Injection, Target, inject
from tests.proofs.invariants import Answer
from tests.proofs.snapshots import read_snapshot
from tests.support.upstream import Caller

# Seconds after which an answer counts as one that hangs, and tries of a settler to settle what waits.
MAX_SECONDS: Final = 15.0
MAX_TRIES: Final = 10

# The ways in which calls fail. To PostgreSQL a call that takes too long ends like a lost connection: it is given up.
FAULTS: Final = {
    Target.VALKEY: tuple(Fault),
    Target.POSTGRES: (Fault.REFUSED, Fault.ANSWER_LOST),
    Target.UPSTREAM: tuple(Fault),
    # No room, and a disk that did it and reports a failure.
    Target.DISK: (Fault.REFUSED, Fault.ANSWER_LOST),
}
# In a test run each of the faults strikes every so many calls; `script/proofs` strikes each call.
SAMPLE: Final = 30
sampled_or_each = pytest.mark.parametrize(
    "step", [pytest.param(SAMPLE, id="sample"), pytest.param(1, id="each", marks=pytest.mark.long)]
)

# A piece of work: asks under a request's id, and returns the client's answers.
Work = Callable[[str], Sequence[Answer]]


class WrongAnswer(Exception):
    """An answer that is neither complete nor a clear error in the client's format."""


@dataclass
class Gateway:
    """The product in this process, with an organization of 100 USD, and all answers that it gave."""

    caller: Caller
    answers: list[Answer] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    retransmission: Retransmission = field(default_factory=Retransmission)
    watch: LedgerWatch = field(default_factory=LedgerWatch)
    reader: OutboxReader = field(default_factory=lambda: OutboxReader("settler"))
    # Work beside the settler's that other processes do once a worker is lost.
    take_over: Callable[[], object] = lambda: None

    def begin(self) -> None:
        """Be a process that has just been started, with a store that knows nothing."""
        valkey().flushall()
        # Heartbeats of earlier tests are not to find it emptied.
        for name in DATA_NAMES:
            valkey().set(name, "test run")
        outbox.prepare()
        policy.forget_all()
        # Read again, even within the second after a failure.
        process_copy._failed_until = 0.0
        process_copy.distrust()
        circuit_breaker.CIRCUIT_BREAKERS.reset()
        credentials.reset_cooldowns()
        offline_accounts.forget_all()
        offline_admission.forget_all()
        connection_pool.close_idle()
        worker_leases.send_heartbeat(worker_name())
        self.retransmission.look()

    def do(self, work: Work, injection: Injection) -> None:
        """Do a piece of work with a call that fails. Raises WrongAnswer, also for an answer that never comes."""
        try:
            with gevent.Timeout(MAX_SECONDS), inject(injection):
                self.answers += work(f"{injection.target}-{uuid4().hex[:8]}")
        except gevent.Timeout:
            raise WrongAnswer("hangs") from None
        except (RedisError, DatabaseError, InterfaceError, ApiError, OSError) as error:
            raise WrongAnswer(f"raises {error!r}") from error

    def beat(self) -> None:
        """Do what a worker does with each heartbeat. Raises RedisError, DatabaseError, OSError."""
        worker_leases.send_heartbeat(worker_name())
        outbox.replay_spool()
        offline_admission.on_heartbeat()
        self.retransmission.look()

    def settle(self) -> None:
        """Do what the settler does until nothing waits, as often as it takes."""
        for _ in range(MAX_TRIES):
            # It does so each second.
            self.reader.search_again()
            try:
                while messages := self.reader.read(500, 1):
                    settle(messages)
                return
            # As in the settler's own loop.
            except (RedisError, DatabaseError, InterfaceError, OSError):
                connection.close()
        raise WrongAnswer("the settler does not get on")

    def recover(self) -> None:
        """Let all parts do what they do within seconds of a fault."""
        connection.close()
        CIRCUIT_BREAKER.record_success()
        # Failures of commands that nothing waits for arrive.
        gevent.idle()
        outbox._RETRIES.join(MAX_SECONDS)
        BACKLOG.drain()
        self.beat()
        self.take_over()
        self.settle()
        self.beat()
        self.settle()
        self.watch.look()

    def problems(self) -> list[str]:
        """Return the broken invariants, holds that nothing releases, and records that nothing settles."""
        seen = read_snapshot(answers=self.answers, epochs=self.epochs)
        self.epochs = list(seen.epochs[-2:])
        found = [f"{one.invariant}: {one.subject} {one.words}" for one in invariants.breaches(seen)]
        found += [f"still held: {hold}" for hold in seen.holds]
        found += [f"still waits: {record}" for record in seen.waiting]
        return found


@pytest.fixture
def gateway(
    transactional_db: None, caller: Caller, injectable: None, table: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Gateway]:
    """The product in this process, whose calls can be made to fail."""
    # Reservations of requests that were refused are released at once, not after the store's longest delay.
    monkeypatch.setattr(offline_admission, "_LATEST_EXECUTION", 0.0)
    Organization.objects.filter(pk=caller.organization_id).update(credits=0)
    ledger.grant(caller.organization_id, Decimal(100), "Proof")
    one = Gateway(caller, epochs=[balance_copies.read_epoch()])
    yield one
    one.begin()
    # The store that lost these is gone, and so is the database.
    BUFFER.take()


@dataclass
class Tally:
    """The outcome of a piece of work with each call failing in each way."""

    work: str
    target: Target
    # Calls that the work makes when none fails.
    calls: list[str]
    runs: int = 0
    answered: int = 0
    refused: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def row(self) -> str:
        """Return the line of a table."""
        words = (self.work, self.target, len(self.calls), self.runs, self.answered, self.refused, len(self.problems))
        return f"| {' | '.join(map(str, words))} | {self.seconds:.0f} |"


# All tallies of this run, in order.
TALLIES: Final[list[Tally]] = []
HEADER: Final = (
    "| work | calls to | calls | runs | answered | refused | broken promises | seconds |\n"
    "|---|---|---:|---:|---:|---:|---:|---:|"
)


@pytest.fixture(scope="session")
def table(pytestconfig: pytest.Config) -> Iterator[None]:
    """Print all tallies at the end of the run, captured or not."""
    yield
    capture: Any = pytestconfig.pluginmanager.get_plugin("capturemanager")
    if TALLIES and capture is not None:
        with capture.global_and_fixture_disabled():
            sys.stdout.write("\n".join(["", HEADER, *(tally.row() for tally in TALLIES), ""]))
        TALLIES.clear()


def fail_each_call(
    gateway: Gateway,
    name: str,
    work: Work,
    target: Target,
    *,
    prepare: Callable[[], object] = lambda: None,
    step: int = 1,
    is_store_deaf: bool = False,
) -> Tally:
    """Do the work once undisturbed, then with each of its calls failing in each way; return the tally.

    With a `step`, each fault strikes every so many calls, and the next fault others than the one before.
    """
    began = time.monotonic()
    tally = Tally(name, target, _calm(gateway, work, target, prepare, is_store_deaf=is_store_deaf))
    assert tally.calls
    for order, fault in enumerate(FAULTS[target]):
        # A process that has done the work before may make another number of calls.
        for number in count(1 + (order % len(tally.calls) if step > 1 else 0), step):
            gateway.begin()
            prepare()
            injection = Injection(target, number, fault, is_store_deaf=is_store_deaf)
            known = len(gateway.answers)
            wrong = ""
            try:
                gateway.do(work, injection)
                gateway.recover()
            except WrongAnswer as error:
                wrong = str(error)
            if not injection.has_struck:
                break
            tally.runs += 1
            where = f"{name}, {target} call {number} ({injection.calls[number - 1]}) {fault}"
            tally.problems += [f"{where}: {wrong}"] if wrong else []
            tally.problems += [f"{where}: {problem}" for problem in gateway.problems()]
            new = gateway.answers[known:]
            tally.answered += sum(answer.cost is not None for answer in new)
            tally.refused += sum(answer.refused for answer in new)
            if tally.problems:
                # The stores stay wrong: later runs would only repeat it.
                break
        if tally.problems:
            break
    tally.seconds = time.monotonic() - began
    TALLIES.append(tally)
    return tally


def _calm(
    gateway: Gateway, work: Work, target: Target, prepare: Callable[[], object], *, is_store_deaf: bool
) -> list[str]:
    gateway.begin()
    prepare()
    counted, known = Injection(target, is_store_deaf=is_store_deaf), len(gateway.answers)
    gateway.do(work, counted)
    gateway.recover()
    assert gateway.problems() == []
    assert all(answer.cost for answer in gateway.answers[known:]), "without a fault all is answered"
    return counted.calls


# --- answers of clients


def whole_answer(request: str, status: int, body: bytes, *, rows: int | None = 1, is_error_free: bool = True) -> Answer:
    """Return the answer in a response of OpenAI's formats. Raises WrongAnswer.

    `is_error_free` tells that an error costs nothing, as it does unless a part was answered before.
    """
    try:
        told = json.loads(body, parse_float=Decimal)
    except ValueError:
        raise WrongAnswer(f"status {status} without JSON: {body[:80]!r}") from None
    if status == 200 and told.get("error") is None:
        return Answer(request, Decimal(told["usage"]["cost_usd_total"]), rows=rows)
    _check_error(status, told.get("error"))
    return Answer(request, refused=is_error_free)


def streamed_answer(request: str, status: int, body: bytes) -> Answer:
    """Return the answer in a stream of chat completions. Raises WrongAnswer."""
    if status != 200:
        return whole_answer(request, status, body)
    frames = [frame.removeprefix(b"data: ") for frame in body.split(b"\n\n") if frame.startswith(b"data: ")]
    told = [json.loads(frame, parse_float=Decimal) for frame in frames if frame != b"[DONE]"]
    for chunk in told:
        if "error" in chunk:
            _check_error(500, chunk["error"])
            return Answer(request, refused=True)
    if frames[-1:] != [b"[DONE]"]:
        raise WrongAnswer(f"a stream without an end: {body[-80:]!r}")
    with suppress(StopIteration, KeyError):
        usage = next(chunk["usage"] for chunk in reversed(told) if chunk.get("usage"))
        return Answer(request, Decimal(usage["cost_usd_total"]))
    raise WrongAnswer("a stream that does not state its cost")


def _check_error(status: int, error: Any) -> None:
    if status < 400 or not isinstance(error, dict) or not error.get("message") or not error.get("type"):
        raise WrongAnswer(f"status {status} with the error {error!r}")
