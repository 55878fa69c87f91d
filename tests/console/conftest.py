"""The cast and the upstream, for the tests of this folder."""

from tests.support.cast import world
from tests.support.guard_service import service
from tests.support.sink_receiver import _receiver, receiver
from tests.support.upstream import caller, sandbox_url

__all__ = ["_receiver", "caller", "receiver", "sandbox_url", "service", "world"]
