"""Running a target: an input tried, a crash made small, many inputs drawn from a seed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

import gevent

from tests.fuzz.mutations import mutated
from tests.fuzz.target import Target

# Seconds after which an input counts as one that hangs its reader; they usually take a thousandth.
PATIENCE = 10.0


class Hang(AssertionError):
    """A reader that took too long."""


@dataclass(frozen=True)
class Crash:
    """An input that a reader did not keep its promises about, and what it did instead."""

    data: bytes
    error: BaseException

    @property
    def kind(self) -> tuple[str, str, int]:
        """The error's type, and the line in which it was raised: crashes of one kind have one cause."""
        trace = self.error.__traceback__
        while trace and trace.tb_next:
            trace = trace.tb_next
        place = (trace.tb_frame.f_code.co_filename, trace.tb_lineno) if trace else ("", 0)
        return (type(self.error).__name__, *place)


def tried(target: Target, data: bytes) -> Crash | None:
    """Run a target on one input; return its crash, None when it kept its promises."""
    began = time.monotonic()
    try:
        target.run(data)
    except (KeyboardInterrupt, SystemExit, gevent.GreenletExit):
        raise
    except BaseException as error:  # noqa: BLE001 - any exception that escapes is a finding
        return Crash(data, error)
    if time.monotonic() - began > PATIENCE:
        return Crash(data, Hang(f"it took longer than {PATIENCE:g} s"))
    return None


def inputs(target: Target, chance: Random) -> Iterator[bytes]:
    """Yield the seeds, and then for ever what becomes of them."""
    yield from target.seeds
    while True:
        yield mutated(chance.choice(target.seeds), target.shape, target.seeds, chance)


def smallest(target: Target, crash: Crash, seconds: float = 20.0) -> Crash:
    """Return the crash with as little of its input as shows the same error at the same place."""
    until = time.monotonic() + seconds
    step = max(1, len(crash.data) // 2)
    while step and time.monotonic() < until:
        at, smaller = 0, False
        while at < len(crash.data) and time.monotonic() < until:
            again = tried(target, crash.data[:at] + crash.data[at + step :])
            if again is not None and again.kind == crash.kind:
                crash, smaller = again, True
            else:
                at += step
        step = step if smaller and step > 1 else step // 2
    return crash


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what products say to their logs out of the way."""
    import logging

    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
