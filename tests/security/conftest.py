"""Fixtures of the tests that go all the way to an upstream, and the cast."""

from tests.support.cast import world
from tests.support.upstream import backup, caller, sandbox_url

__all__ = ["backup", "caller", "sandbox_url", "world"]
