"""The cast, for walks with the product's functions."""

from tests.support.cast import world

__all__ = ["world"]
