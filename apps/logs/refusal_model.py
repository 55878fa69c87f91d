"""The table of refused requests: counts by key, reason and hour."""

from __future__ import annotations

from django.db import models


class RefusedHour(models.Model):
    """The requests of one key that were refused for one reason within one hour (UTC)."""

    id = models.BigAutoField(primary_key=True)
    organization_id = models.UUIDField()
    api_key_id = models.UUIDField()
    hour = models.DateTimeField()
    # HTTP status and error code of the answer.
    status = models.PositiveSmallIntegerField()
    code = models.CharField(max_length=64)
    count = models.BigIntegerField()
    last_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id", "hour", "api_key_id", "status", "code"], name="refused_hour_once"
            )
        ]
        indexes = [models.Index(fields=["hour"], name="refused_hour_age")]

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%d %H}:00 {self.status} {self.code} x {self.count}"
