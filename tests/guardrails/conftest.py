"""The cast, for the tests of this folder."""

from tests.world import world

__all__ = ["world"]
