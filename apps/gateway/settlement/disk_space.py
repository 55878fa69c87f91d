"""Disk space: a metric of the free space under the home and the embedded stores' data, and an alarm while it is low."""

from __future__ import annotations

import os
from pathlib import Path

import structlog
from django.conf import settings

from apps.gateway.metrics import HOME_FREE

log = structlog.get_logger(__name__)

# Links where their data are elsewhere.
_STORES = ("postgres", "valkey")
_alarmed = False


def check_disk_space() -> None:
    """Set the metric, and tell the log once when space gets low, and once when it no longer is."""
    global _alarmed
    free = read_free()
    for folder, size in free.items():
        HOME_FREE.labels(folder).set(size)
    low = sorted(folder for folder, size in free.items() if size < settings.DISK_FREE_ALARM)
    if low and not _alarmed:
        log.error("disk.low", folders=low, free=min(free.values()), alarm=settings.DISK_FREE_ALARM)
    elif _alarmed and not low:
        log.warning("disk.well_again", free=min(free.values()))
    _alarmed = bool(low)


def is_low() -> bool:
    """Tell whether any of the folders has less space than it should."""
    return any(size < settings.DISK_FREE_ALARM for size in read_free().values())


def read_free() -> dict[str, int]:
    """Return the bytes that are free for unprivileged processes, by folder, for the folders that exist."""
    home = Path(settings.GATEWAY_HOME)
    free: dict[str, int] = {}
    for name, folder in (("home", home), *((store, home / store) for store in _STORES)):
        try:
            found = os.statvfs(folder)
        except OSError:
            continue
        free[name] = found.f_bavail * found.f_frsize
    return free
