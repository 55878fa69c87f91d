"""Which thread does the work that is given to a pool of native threads."""

from __future__ import annotations

import threading

import pytest

from apps.kernel.native_thread_pool import NativeThreadPool


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
