"""The cast and the sandbox upstream, for the tests of this folder."""

from tests.upstream import sandbox_url
from tests.world import world

__all__ = ["sandbox_url", "world"]
