"""The cast and the payment processor, for the tests of this folder."""

from tests.payments import _stub, stripe
from tests.upstream import backup, caller, sandbox_url
from tests.world import world

__all__ = ["_stub", "backup", "caller", "sandbox_url", "stripe", "world"]
