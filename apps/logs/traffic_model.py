"""The tables of traffic: what the requests of all organizations add up to, in slots of five minutes and of an hour.

Columns alone; `traffic.py` writes them.
"""

from __future__ import annotations

from django.db import models

from apps.kernel.money import MoneyField


class TrafficCounts(models.Model):
    """What all organizations' requests of five minutes add up to, counted apart by one aspect of them.

    A request counts once in each aspect: in `everything`, in its model, its provider, its organization, how it ended
    (`unified_finish_reason`), and the steps (`traffic.STEPS_PER_DOUBLING`) of its duration and its time to first token.
    """

    class Aspect(models.TextChoices):
        """What requests are counted apart by."""

        EVERYTHING = "everything"
        MODEL = "model"
        PROVIDER = "provider"
        ORGANIZATION = "organization"
        END = "end"
        DURATION = "duration"
        FIRST_TOKEN = "first_token"  # noqa: S105 - what is counted

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
    # Of the input, read from a provider's prompt cache.
    cached_tokens = models.BigIntegerField(default=0)
    cost = MoneyField(default=0)
    # Of the cost, what was paid with credits.
    credits_cost = MoneyField(default=0)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.starts_at:%Y-%m-%d %H:%M} {self.aspect} {self.name}".strip()


class TrafficSlot(TrafficCounts):
    """The counts of five minutes or of an hour, but for what still waits as `TrafficDelta`."""

    # How long the slot is: 5 or 60.
    minutes = models.PositiveSmallIntegerField()

    class Meta:
        verbose_name_plural = "traffic"
        constraints = [
            models.UniqueConstraint(fields=["minutes", "starts_at", "aspect", "name"], name="traffic_slot_once")
        ]


class TrafficDelta(TrafficCounts):
    """What one batch of rows adds to its slots: written with the rows, folded soon after. Less where a row was
    replaced."""
