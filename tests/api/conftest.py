"""Fixtures of the API's tests."""

from tests.support.cast import world
from tests.support.guard_service import service
from tests.support.payments import _stub, stripe
from tests.support.provider_keys import administrator, provider, with_catalog
from tests.support.sink_receiver import _receiver, receiver
from tests.support.upstream import backup, caller, sandbox_url

__all__ = [
    "_receiver",
    "_stub",
    "administrator",
    "backup",
    "caller",
    "provider",
    "receiver",
    "sandbox_url",
    "service",
    "stripe",
    "with_catalog",
    "world",
]
