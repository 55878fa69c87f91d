"""Fixtures of the tests that go all the way to an upstream, and the cast."""

from tests.upstream import backup, caller, sandbox_url
from tests.world import world

__all__ = ["backup", "caller", "sandbox_url", "world"]
