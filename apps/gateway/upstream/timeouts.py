"""Timeouts of a call to a provider, in seconds, from the settings."""

from __future__ import annotations

from functools import cache

from django.conf import settings
from django.core.signals import setting_changed
from django.dispatch import receiver
from msgspec.structs import replace

from apps.gateway.upstream.http_response import Timeouts


@cache
def default_timeouts() -> Timeouts:
    """Return the timeouts that hold for every call."""
    return Timeouts(
        connect=settings.UPSTREAM_CONNECT_TIMEOUT,
        first_byte=settings.UPSTREAM_FIRST_BYTE_TIMEOUT,
        idle=settings.UPSTREAM_IDLE_TIMEOUT,
        total=settings.UPSTREAM_TOTAL_TIMEOUT,
        tick=settings.HEARTBEAT_INTERVAL,
    )


def timeouts_within(first_byte: float | None, total: float | None) -> Timeouts:
    """Return the timeouts of a call, which may be shorter than usual until its first byte, and altogether."""
    usual = default_timeouts()
    if total is not None:
        usual = replace(usual, first_byte=min(usual.first_byte, total), total=min(usual.total, total))
    return usual if first_byte is None else replace(usual, first_byte=min(usual.first_byte, first_byte))


@receiver(setting_changed)
def _forget(**_: object) -> None:
    default_timeouts.cache_clear()
