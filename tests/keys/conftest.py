"""The cast and the sandbox upstream, for the tests of this folder."""

from tests.support.cast import world
from tests.support.upstream import sandbox_url

__all__ = ["sandbox_url", "world"]
