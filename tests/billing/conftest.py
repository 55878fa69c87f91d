"""The cast and the payment processor, for the tests of this folder."""

from tests.support.cast import world
from tests.support.payments import _stub, stripe
from tests.support.upstream import backup, caller, sandbox_url

__all__ = ["_stub", "backup", "caller", "sandbox_url", "stripe", "world"]
