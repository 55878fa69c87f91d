"""Which thread does the work that is given to a pool of native threads."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from apps.kernel.concurrency.native_thread_pool import ComputedOnce, NativeThreadPool
from gateway_project.configuration.data_directory import PROJECT

# A process of the product that ends while a thread is within RE2, which lets other threads run meanwhile.
ENDING = """
from gevent import monkey; monkey.patch_all()
import os, signal, sys, gevent, re2
from apps.kernel.concurrency import native_thread_pool
native_thread_pool.END_PATIENCE = {patience}
pattern, text, begun = re2.compile(rb"(x+x+)+y"), b"xa" * 2_000_000, []
def match():
    begun.append(True)
    for _ in range({matches}):
        pattern.search(text)
    os.write(1, b"matched")
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
gevent.spawn(native_thread_pool.NativeThreadPool(1).run, match)
while not begun:
    gevent.sleep(0.001)
{end}
"""


def ending(end: str, *, matches: int = 30, patience: float = 60) -> tuple[int, str, str]:
    """Return the exit code and the output of such a process."""
    program = ENDING.format(end=end, matches=matches, patience=patience)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_the_event_loops_thread_leaves_work_to_the_pool() -> None:
    pool = NativeThreadPool(1)
    assert pool.run(threading.get_ident) != threading.get_ident()


def test_work_that_comes_from_a_thread_of_its_own_is_done_there_before_and_after_the_pool_is_made() -> None:
    pool, ran = NativeThreadPool(1), list[bool]()

    def ask() -> None:
        ran.append(pool.run(threading.get_ident) == threading.get_ident())

    for _ in range(2):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        assert pool.run(threading.get_ident) != threading.get_ident()
    assert ran == [True, True]


def test_an_error_of_the_work_is_raised_where_it_was_asked_for() -> None:
    with pytest.raises(ZeroDivisionError):
        NativeThreadPool(1).run(lambda: 1 // 0)


@pytest.mark.parametrize("end", ["", "sys.exit(0)", "os.kill(os.getpid(), signal.SIGTERM)"])
def test_a_process_ends_when_its_threads_have_done_their_work(end: str) -> None:
    assert ending(end) == (0, "matched", "")


def test_a_process_does_not_wait_for_ever() -> None:
    told = "a thread is still computing after 0 s: exiting without it\n"
    assert ending("sys.exit(0)", matches=1000, patience=0.1) == (1, "", told)


@pytest.mark.long
def test_twenty_processes_end_side_by_side_without_an_abort() -> None:
    with ThreadPoolExecutor(4) as executor:
        ended = list(executor.map(lambda _: ending("sys.exit(0)", matches=10), range(20)))
    assert ended == [(0, "matched", "")] * 20


# A process with an event loop in which three greenlets ask for a value that takes long, and another counts its turns.
COMPUTING = """
from gevent import monkey; monkey.patch_all()
import threading, time, gevent
from apps.kernel.concurrency.native_thread_pool import ComputedOnce
loop, turns, threads = threading.get_ident(), [], set()
clock = monkey.get_original("time", "monotonic")
def work():
    threads.add(monkey.get_original("_thread", "get_ident")())
    until = clock() + 0.3
    while clock() < until:
        pass
    return object()
def count():
    while True:
        turns.append(True)
        gevent.sleep(0.001)
once = ComputedOnce(work)
counting = gevent.spawn(count)
asking = [gevent.spawn(once.get) for _ in range(3)]
gevent.joinall(asking)
found = {id(one.value) for one in asking}
print(len(found), len(threads), monkey.get_original("_thread", "get_ident")() in threads, len(turns) > 10)
"""


def test_a_value_is_computed_once_on_a_thread_while_the_event_loop_goes_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMPUTING], cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, ["1", "1", "False", "True"]), done.stderr


def test_a_value_whose_computation_failed_is_computed_by_the_next_caller() -> None:
    tries = list[int]()

    def work() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("not yet")
        return "found"

    once = ComputedOnce(work)
    with pytest.raises(ValueError, match="not yet"):
        once.get()
    assert (once.get(), once.get(), len(tries)) == ("found", "found", 2)
