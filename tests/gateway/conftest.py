"""Fixtures of the gateway's tests that go all the way to an upstream."""

from tests.support.upstream import backup, caller, sandbox_url

__all__ = ["backup", "caller", "sandbox_url"]
