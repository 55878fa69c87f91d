"""Provider bills: readings, their lines, and the comparison of each day with the request log.

Lines are append-only: a changed line is another version, and a trigger refuses updates. Comparisons are derived from
lines and log, and replaced. No row belongs to an organization.
"""

from __future__ import annotations

from django.db import models

from apps.kernel.ids import new_id
from apps.kernel.money import MoneyField, plain


class BillReading(models.Model):
    """One reading of a provider's bill, from its API or a file; unfinished where the process died."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    provider = models.CharField(max_length=40)
    # `api`, or the name of the imported file and the begin of its SHA-256.
    origin = models.CharField(max_length=300)
    started_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)
    # The period whose lines are complete in this reading; null after a failure.
    covers_from = models.DateTimeField(null=True)
    covers_until = models.DateTimeField(null=True)
    # Lines read, and those of them that were new or had changed.
    lines = models.BigIntegerField(default=0)
    new_lines = models.BigIntegerField(default=0)
    problem = models.CharField(max_length=300, blank=True)

    class Meta:
        indexes = [models.Index(fields=["provider", "-finished_at"], name="bill_reading_last")]

    def __str__(self) -> str:
        return f"{self.provider} {self.started_at:%Y-%m-%d %H:%M}"


class BillLine(models.Model):
    """One line of a provider's bill in one version: the usage or cost of a model in a period, or one request. Never
    changed.

    Counts and amount are null where the provider does not state them.
    """

    class Source(models.TextChoices):
        """The report that states the line."""

        USAGE = "usage", "usage report"
        COST = "cost", "cost report"
        FILE = "file", "imported file"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    reading = models.ForeignKey(BillReading, models.PROTECT, related_name="bill_lines")
    provider = models.CharField(max_length=40)
    source = models.CharField(max_length=8, choices=Source.choices)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    # As the provider calls it; empty for costs of no model.
    model = models.CharField(max_length=255, blank=True)
    # The request's id where the bill names single requests, else empty.
    request_id = models.CharField(max_length=128, blank=True)
    # Counts from 1; the highest is in force.
    version = models.PositiveIntegerField(default=1)
    requests = models.BigIntegerField(null=True)
    # All input, with the part read from the provider's cache and the part written to it.
    input_tokens = models.BigIntegerField(null=True)
    cached_tokens = models.BigIntegerField(null=True)
    cache_write_tokens = models.BigIntegerField(null=True)
    output_tokens = models.BigIntegerField(null=True)
    cost = MoneyField(null=True)
    fetched_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "starts_at", "ends_at", "source", "model", "request_id", "version"],
                name="bill_line_once_per_version",
            )
        ]

    def __str__(self) -> str:
        amount = "" if self.cost is None else f" {plain(self.cost)} USD"
        return f"{self.provider} {self.starts_at:%Y-%m-%d %H:%M} {self.model}{amount}"


class BillComparison(models.Model):
    """One day (UTC) of a provider's bill compared with the request log."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    provider = models.CharField(max_length=40)
    day = models.DateField()
    compared_at = models.DateTimeField()
    # Null where the bill states no amounts.
    billed_cost = MoneyField(null=True)
    # At list prices: without discounts, and only requests that the gateway's own credentials paid.
    logged_cost = MoneyField()
    # The bill less the log; where the bill states no amounts, the sum of the estimated differences.
    difference = MoneyField()
    # Whether the difference is above the threshold.
    is_above = models.BooleanField(default=False)
    # How many differences there are of each cause.
    counts = models.JSONField(default=dict)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["provider", "day"], name="bill_comparison_once_a_day")]
        indexes = [models.Index(fields=["day"], name="bill_comparison_day")]

    def __str__(self) -> str:
        return f"{self.provider} {self.day}"


class BillDifference(models.Model):
    """A difference between bill and log, of a model in a period or of one request; only so many of a day are kept."""

    class Cause(models.TextChoices):
        """Why bill and log differ."""

        OUTSIDE = "outside", "not in our log: used outside the gateway"
        MISSING = "missing", "missing at the provider"
        TOKENS = "tokens", "tokens differ"
        PRICE = "price", "price differs"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    comparison = models.ForeignKey(BillComparison, models.CASCADE, related_name="differences")
    cause = models.CharField(max_length=8, choices=Cause.choices)
    model = models.CharField(max_length=255, blank=True)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    request_id = models.CharField(max_length=128, blank=True)
    # Both sides in words: requests, tokens, amount.
    billed = models.CharField(max_length=200)
    logged = models.CharField(max_length=200)
    # The bill less the log in USD, estimated where the bill states no amount for the period; null if unknown.
    difference = MoneyField(null=True)

    def __str__(self) -> str:
        return f"{self.get_cause_display()}: {self.model} {self.starts_at:%Y-%m-%d %H:%M}"
