"""Erasure of what a deleted organization keeps in the cache: answers, vectors, thinking, streams."""

from __future__ import annotations

from uuid import UUID

from apps.kernel.valkey.cache_store import CacheShare


def erase(organization_id: UUID) -> None:
    """Remove every entry of the organization. Raises RedisError."""
    CacheShare(organization_id, 0).forget_all()
