"""Fixtures of the specification's tests."""

from tests.payments import _stub, stripe
from tests.provider_keys import administrator, provider, with_catalog
from tests.upstream import backup, caller, sandbox_url
from tests.world import world

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
