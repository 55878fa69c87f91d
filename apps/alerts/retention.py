"""Retention of alerts: resolved ones, and those of events, are deleted after 90 days. Open ones stay."""
# alone: tasks.py only starts work, which is elsewhere

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.db.models import Q

from apps.alerts.kind_names import EVENTS
from apps.alerts.models import Alert
from apps.kernel.postgres.deletion import delete_in_pieces

KEPT: Final = timedelta(days=90)


def expire(now: datetime) -> int:
    """Delete alerts past their retention with their deliveries; return how many."""
    over = Q(resolved_at__isnull=False) | Q(kind__in=EVENTS)
    return delete_in_pieces(Alert.objects.filter(over, fired_at__lt=now - KEPT))
