"""Yield point: where many greenlets are woken at once, each goes on when the event loop has time for it.

Whoever serves requests says how that is done; where nobody does, everybody goes on at once. Must never know a request.
"""

from __future__ import annotations

from collections.abc import Callable


def _go_on() -> None:
    """Go on at once."""


_wait_for_turn: Callable[[], None] = _go_on


def set_yield_point(wait_for_turn: Callable[[], None]) -> None:
    """Let this be called wherever many may be woken at once; it returns when its caller may go on."""
    global _wait_for_turn
    _wait_for_turn = wait_for_turn


def yield_turn() -> None:
    """Wait until the event loop has time to go on."""
    _wait_for_turn()
