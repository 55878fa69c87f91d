"""Fixtures of the specification's tests."""

from tests.provider_keys import administrator, provider, with_catalog
from tests.upstream import backup, caller, sandbox_url
from tests.world import world

__all__ = ["administrator", "backup", "caller", "provider", "sandbox_url", "with_catalog", "world"]
