"""Fixtures of the API's tests."""

from tests.support.cast import world
from tests.support.payments import _stub, stripe
from tests.support.provider_keys import administrator, provider, with_catalog
from tests.support.upstream import backup, caller, sandbox_url

__all__ = [
    "_stub",
    "administrator",
    "backup",
    "caller",
    "provider",
    "sandbox_url",
    "stripe",
    "with_catalog",
    "world",
]
