"""Tables of log sinks: sinks with their delivery state, and the rows of the log that wait for each.

Credentials are stored encrypted.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from apps.destinations.models import Destination
from apps.organizations.models import Organization


class LogSink(Destination):
    """An organization's receiver of its log, with encrypted credentials and delivery state."""

    class Kind(models.TextChoices):
        """How rows are sent."""

        WEBHOOK = "webhook", "Webhook"
        S3 = "s3", "S3-compatible bucket"
        OTLP = "otlp", "OpenTelemetry (Langfuse)"

    organization = models.ForeignKey(Organization, models.CASCADE, related_name="log_sinks")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    url = models.URLField(max_length=500)
    # Options of its kind: `format` of a webhook; `bucket`, `prefix`, `region` of a bucket.
    options = models.JSONField(default=dict, blank=True)
    # Whether stored prompts and answers are sent.
    include_content = models.BooleanField(default=False)

    # The number of the newest batch; a batch with waiting rows is sent again under its number.
    last_batch = models.BigIntegerField(default=0, editable=False)
    delivered_rows = models.BigIntegerField(default=0, editable=False)
    # Whether the owners still have to be notified that it was switched off.
    disabled_notice_due = models.BooleanField(default=False, db_default=False, editable=False)
    # Rows that waited longer than the maximum.
    dropped_rows = models.BigIntegerField(default=0, editable=False)

    class Meta:
        verbose_name = "log sink"
        indexes = [
            models.Index(fields=["organization"], name="log_sink_active", condition=Q(status="active")),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "name"], condition=~Q(status="deleted"), name="log_sink_name_unique"
            )
        ]

    def switch_off(self) -> list[str]:
        """Set the status `failed`, with a notice to the owners; return the names of the changed columns."""
        self.disabled_notice_due = True
        return [*super().switch_off(), "disabled_notice_due"]


class WaitingRow(models.Model):
    """A log row that waits to be sent to a sink. Written with the row, deleted once the sink has it.

    Plain ids, not foreign keys: a settlement must never fail because a sink is deleted. `batch` is null until one is
    chosen.
    """

    id = models.BigAutoField(primary_key=True)
    sink_id = models.UUIDField()
    log_id = models.UUIDField()
    batch = models.BigIntegerField(null=True)
    queued_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = "row that waits for a log sink"
        verbose_name_plural = "rows that wait for log sinks"
        indexes = [
            models.Index(fields=["sink_id", "id"], name="waiting_row_sink"),
            models.Index(fields=["sink_id", "batch"], name="waiting_row_batch", condition=Q(batch__isnull=False)),
            models.Index(fields=["queued_at"], name="waiting_row_queued"),
        ]

    def __str__(self) -> str:
        return str(self.log_id)
