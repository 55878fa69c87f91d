"""The cast and a receiver, for the tests of this folder."""

from tests.support.cast import world
from tests.support.sink_receiver import _receiver, receiver

__all__ = ["_receiver", "receiver", "world"]
