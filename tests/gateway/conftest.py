"""Fixtures of the gateway's tests that go all the way to an upstream."""

from tests.upstream import caller, sandbox_url

__all__ = ["caller", "sandbox_url"]
