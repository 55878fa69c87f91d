"""The findings of the nightly reconciliation, clearing accounts, and balance sheets. Columns alone.

Rows keep plain ids: the objects may be gone.
"""

from __future__ import annotations

from django.db import models

from apps.kernel.ids import new_id
from apps.kernel.money import MoneyField


class Reconciliation(models.Model):
    """One comparison of requests, log, ledger and balances; unfinished where the process died."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    started_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)
    # The UTC days of the log that were compared with the ledger, as `YYYY-MM-DD`.
    days = models.JSONField(default=list)
    # How many log rows with a cost were compared, and how many differences of each kind were found.
    compared = models.BigIntegerField(default=0)
    counts = models.JSONField(default=dict)

    class Meta:
        indexes = [models.Index(fields=["-finished_at"], name="reconciliation_last")]

    def __str__(self) -> str:
        return f"{self.started_at:%Y-%m-%d %H:%M:%S}"

    @property
    def found(self) -> int:
        """How many differences there are."""
        return sum(self.counts.values())


class Difference(models.Model):
    """Two things that should be one and are not; amounts in USD. Only so many of a kind are kept of a run."""

    class Kind(models.TextChoices):
        """The compared values."""

        CREDITS = "credits", "credits are not the sum of their ledger entries"
        USAGE = "usage", "a key's usage is not the sum of its ledger entries"
        PARTS = "parts", "a log row's cost is not the sum of its parts"
        NOT_CHARGED = "not_charged", "a log row with a cost has no ledger entry"
        NOT_LOGGED = "not_logged", "a ledger entry has no log row"
        AMOUNT = "amount", "a ledger entry moves something else than its log row says"
        OPEN = "open", "a request was let in and never recorded"
        WAITING = "waiting", "a record has been waiting to be settled for too long"
        UNREADABLE = "unreadable", "a record could not be read and was put aside"
        HELD = "held", "a balance's holds differ from those of open requests"
        COPY = "copy", "the copy of a balance is not the balance"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    reconciliation = models.ForeignKey(Reconciliation, models.CASCADE, related_name="differences")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    # The organization, key, request or log row that it is about.
    subject_id = models.UUIDField(null=True)
    organization_id = models.UUIDField(null=True)
    expected = models.CharField(max_length=64, blank=True)
    found = models.CharField(max_length=64, blank=True)

    class Meta:
        indexes = [models.Index(fields=["subject_id"], name="difference_subject")]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.subject_id}"


class ClearingAccount(models.Model):
    """Money in flight of one kind, as it was last read: amount, items, the oldest one, and how old that may be."""

    # `held`, `answered`, `batches`, or `unbilled ` and the provider.
    name = models.CharField(primary_key=True, max_length=60)
    amount = MoneyField(default=0)
    items = models.BigIntegerField(default=0)
    oldest_at = models.DateTimeField(null=True)
    # Seconds.
    bound = models.BigIntegerField()
    read_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name

    @property
    def age(self) -> float:
        """Seconds from the oldest item to the reading; 0 without items."""
        return 0.0 if self.oldest_at is None else max((self.read_at - self.oldest_at).total_seconds(), 0.0)

    @property
    def is_overdue(self) -> bool:
        """Whether the oldest item is older than its bound."""
        return self.age > self.bound


class BalanceSheet(models.Model):
    """All credits at one moment, in USD: where they came from, where they went, and where they are. Never changed.

    `received - used - batches` is the ledger's sum: the credits of organizations, and entries of deleted ones. The
    credits are available or held.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    drawn_at = models.DateTimeField(auto_now_add=True)
    received = MoneyField()
    used = MoneyField()
    batches = MoneyField()
    deleted = MoneyField()
    credits = MoneyField()
    held = MoneyField()
    answered = MoneyField()
    available = MoneyField()
    # Ledger less credits; holds of requests less the amounts held on balances. Both must be 0.
    ledger_difference = MoneyField()
    holds_difference = MoneyField()

    def __str__(self) -> str:
        return f"{self.drawn_at:%Y-%m-%d %H:%M}"

    @property
    def is_balanced(self) -> bool:
        """Whether both sides agree."""
        return not self.ledger_difference and not self.holds_difference
