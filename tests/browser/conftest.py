"""The upstream, for the tests of this folder."""

from tests.support.upstream import caller, sandbox_url

__all__ = ["caller", "sandbox_url"]
