"""Fixtures of the specification's tests."""

from tests.upstream import backup, caller, sandbox_url
from tests.world import world

__all__ = ["backup", "caller", "sandbox_url", "world"]
