"""The cast, for the tests of this folder."""

from tests.support.cast import world

__all__ = ["world"]
