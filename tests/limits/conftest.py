"""The cast and a caller, for the tests of this folder."""

from tests.support.cast import world
from tests.support.upstream import caller, sandbox_url

__all__ = ["caller", "sandbox_url", "world"]
