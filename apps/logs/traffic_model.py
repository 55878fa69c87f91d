"""Tables of traffic: sums of all organizations' requests, in slots of five minutes and of an hour.

`traffic.py` writes them.
"""

from __future__ import annotations

from django.db import models

from apps.kernel.money import MoneyField


class TrafficCounts(models.Model):
    """Sums of all organizations' requests in five minutes, in one of several groupings.

    A request counts once in each grouping: everything, model, provider, organization, finish reason
    (`unified_finish_reason`), and the steps (`traffic.STEPS_PER_DOUBLING`) of its duration and time to first token.
    """

    class Aspect(models.TextChoices):
        """The groupings."""

        EVERYTHING = "everything"
        MODEL = "model"
        PROVIDER = "provider"
        ORGANIZATION = "organization"
        END = "end"
        DURATION = "duration"
        FIRST_TOKEN = "first_token"  # noqa: S105 - the name of a grouping

    starts_at = models.DateTimeField()
    aspect = models.CharField(max_length=16, choices=Aspect.choices)
    # The model, the provider, the organization's id, …; empty for everything.
    name = models.CharField(max_length=255)
    requests = models.BigIntegerField(default=0)
    errors = models.BigIntegerField(default=0)
    # Answered from the response cache.
    cache_hits = models.BigIntegerField(default=0)
    input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    # The part of the input that was read from a provider's prompt cache.
    cached_tokens = models.BigIntegerField(default=0)
    cost = MoneyField(default=0)
    # The part of the cost that was paid with credits.
    credits_cost = MoneyField(default=0)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.starts_at:%Y-%m-%d %H:%M} {self.aspect} {self.name}".strip()


class TrafficSlot(TrafficCounts):
    """Sums of five minutes or an hour, without the rows that still wait as `TrafficDelta`."""

    # The slot's length: 5 or 60.
    minutes = models.PositiveSmallIntegerField()

    class Meta:
        verbose_name_plural = "traffic"
        constraints = [
            models.UniqueConstraint(fields=["minutes", "starts_at", "aspect", "name"], name="traffic_slot_once")
        ]


class TrafficDelta(TrafficCounts):
    """The change of a slot by one batch of rows: written with the rows, folded soon after. Negative if a row was
    replaced."""
