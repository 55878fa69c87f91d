"""Tables of limits: the limits, their usage in each window, and each request's part of it.

The counters are the source of truth; copies in Valkey are balances (`apps/billing/balances.py`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from django.db import models, transaction
from django.db.models import Q
from django.utils.translation import gettext, ngettext

from apps.kernel.ids import new_id
from apps.kernel.money import MoneyField
from apps.kernel.valkey import generation
from apps.keys.models import ApiKey
from apps.limits.windows import WindowKind
from apps.organizations.models import DELETED, Organization, Plan, Project, Team, User
from apps.organizations.policy_source import PolicySource


class Limit(PolicySource):
    """A limit: whose requests count (`scope`, `model`, `provider`), what of them, in which window, and how much is
    allowed.

    Scope, model, provider, count and window never change: another limit counts from 0.
    """

    organization_path = "organization_id"

    class Scope(models.TextChoices):
        """Whose requests count."""

        ORGANIZATION = "organization"
        TEAM = "team"
        PROJECT = "project"
        MEMBER = "member"
        KEY = "key"
        END_USER = "end_user"
        MODEL = "model"
        PROVIDER = "provider"

    class Counts(models.TextChoices):
        """The part of a request that counts."""

        USD = "usd", "USD"
        REQUESTS = "requests"
        TOKENS = "tokens"
        INPUT_TOKENS = "input_tokens"
        OUTPUT_TOKENS = "output_tokens"

    class Window(models.TextChoices):
        """When it counts from 0 again; see `windows.py`."""

        MINUTE = WindowKind.MINUTE.value
        HOUR = WindowKind.HOUR.value
        DAY = WindowKind.DAY.value
        WEEK = WindowKind.WEEK.value
        MONTH = WindowKind.MONTH.value
        LIFETIME = WindowKind.LIFETIME.value

    class Action(models.TextChoices):
        """How a request beyond the limit is handled."""

        REFUSE = "refuse"
        WARN = "warn"
        REROUTE = "reroute"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="limits")
    name = models.CharField(max_length=100)
    scope = models.CharField(max_length=16, choices=Scope.choices)
    # The team, the project of the scopes `project` and `end_user`, the member, the key.
    team = models.ForeignKey(Team, models.CASCADE, null=True, blank=True, related_name="limits")
    project = models.ForeignKey(Project, models.CASCADE, null=True, blank=True, related_name="limits")
    member = models.ForeignKey(User, models.CASCADE, null=True, blank=True, related_name="limits")
    api_key = models.ForeignKey(ApiKey, models.CASCADE, null=True, blank=True, related_name="limits")
    # The one end user that it is for, as requests name them; empty: each end user has a counter.
    end_user = models.CharField(max_length=256, blank=True)
    # A model's id, or a pattern of ids with `*`; empty: all models.
    model = models.CharField(max_length=255, blank=True)
    # The id of the provider whose answers count; empty: all.
    provider = models.CharField(max_length=255, blank=True, default="", db_default="")
    counts = models.CharField(max_length=16, choices=Counts.choices)
    window = models.CharField(max_length=8, choices=Window.choices)
    time_zone = models.CharField(max_length=64, default="UTC")
    # For hours and days: how many of them count together, the present one and those before it; empty: the present one.
    rolling = models.PositiveSmallIntegerField(null=True, blank=True)
    # For weeks and months: a date whose weekday, or day of the month, is the first of each; empty: Monday, the first.
    starts_on = models.DateField(null=True, blank=True)
    # USD, or a whole number.
    amount = MoneyField()
    action = models.CharField(max_length=8, choices=Action.choices, default=Action.REFUSE)
    # With the action `reroute`: ids of models that answer instead, the first that can.
    reroute_models = models.JSONField(default=list, db_default=[], blank=True)
    # The amount that holds instead until a moment, and why.
    raised_amount = MoneyField(null=True, blank=True)
    raised_until = models.DateTimeField(null=True, blank=True)
    raise_reason = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        indexes = [models.Index(fields=["organization", "id"], name="limit_of_organization")]
        constraints = [
            models.UniqueConstraint(fields=["organization", "name"], name="limit_name_unique"),
            models.CheckConstraint(
                condition=Q(raised_amount__isnull=True, raised_until__isnull=True)
                | Q(raised_amount__isnull=False, raised_until__isnull=False),
                name="limit_raised_until",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def window_text(self) -> str:
        """The window in words: `in all`, `a month`, `in 24 hours`, `a month, from 2026-01-15 on`."""
        if self.window == WindowKind.LIFETIME:
            return gettext("in all")
        if self.rolling is not None:
            hours = ngettext("in {number} hour", "in {number} hours", self.rolling)
            days = ngettext("in {number} day", "in {number} days", self.rolling)
            return (hours if self.window == WindowKind.HOUR else days).format(number=self.rolling)
        words = {
            WindowKind.MINUTE: gettext("a minute"),
            WindowKind.HOUR: gettext("an hour"),
            WindowKind.DAY: gettext("a day"),
            WindowKind.WEEK: gettext("a week"),
            WindowKind.MONTH: gettext("a month"),
        }[WindowKind(self.window)]
        if self.starts_on is None:
            return words
        return gettext("{window}, from {day} on").format(window=words, day=self.starts_on)


class PlanLimit(models.Model):
    """A limit that operators set for all organizations of a plan (`plan_limits.py`).

    Plan, model, provider, count and window never change, as those of a limit.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    plan = models.CharField(max_length=16, choices=Plan.choices)
    name = models.CharField(max_length=100)
    model = models.CharField(max_length=255, blank=True)
    provider = models.CharField(max_length=255, blank=True)
    counts = models.CharField(max_length=16, choices=Limit.Counts.choices)
    # No lifetime: its counters would have to be kept for as long as the organization.
    window = models.CharField(
        max_length=8, choices=[one for one in Limit.Window.choices if one[0] != Limit.Window.LIFETIME]
    )
    time_zone = models.CharField(max_length=64, default="UTC")
    # USD, or a whole number.
    amount = MoneyField()
    action = models.CharField(max_length=8, choices=Limit.Action.choices, default=Limit.Action.REFUSE)
    reroute_models = models.JSONField(default=list, blank=True)
    # Whether it holds beside an organization's own limit of the same kind, which takes its place otherwise.
    is_fixed = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name = "limit of a plan"
        verbose_name_plural = "limits of plans"
        constraints = [models.UniqueConstraint(fields=["plan", "name"], name="plan_limit_name_unique")]

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save, and invalidate the policies of the plan's organizations on commit."""
        super().save(*args, **kwargs)
        transaction.on_commit(partial(_bump_plan, self.plan))

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Delete, and invalidate the policies of the plan's organizations on commit."""
        transaction.on_commit(partial(_bump_plan, self.plan))
        return super().delete(*args, **kwargs)


def _bump_plan(plan: str) -> None:
    """Invalidate the cached policies of all organizations of a plan."""
    organizations = Organization.objects.filter(plan=plan).exclude(status=DELETED)
    for organization_id in organizations.values_list("pk", flat=True).iterator():
        generation.bump(generation.organization_scope(organization_id))


class LimitCounter(models.Model):
    """The usage of a limit in a window; `id` follows from both, and from the end user.

    Plain ids, not foreign keys: a settlement must never fail because a limit is deleted.
    """

    id = models.UUIDField(primary_key=True, editable=False)
    limit_id = models.UUIDField()
    organization_id = models.UUIDField()
    starts_at = models.DateTimeField()
    # Null: it never ends.
    ends_at = models.DateTimeField(null=True)
    is_money = models.BooleanField()
    # USD, or a whole number.
    used = MoneyField()
    # The part of `used` whose charges were purged.
    folded = MoneyField(default=0, db_default=0)
    # Counts the changes of `used`; its copy carries it.
    used_version = models.BigIntegerField(default=1)

    class Meta:
        verbose_name = "counter of a limit"
        verbose_name_plural = "counters of limits"
        indexes = [
            models.Index(fields=["limit_id", "starts_at"], name="limit_counter_limit"),
            models.Index(fields=["organization_id"], name="limit_counter_organization"),
        ]

    def __str__(self) -> str:
        return str(self.id)


class LimitCharge(models.Model):
    """The amounts that a settled request added to counters. Never changed; purged when old.

    `counted` is a list of `[counter, amount]`.
    """

    # The id of the request's row in the log.
    reference = models.UUIDField(primary_key=True, editable=False)
    organization_id = models.UUIDField()
    counted = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = "request counted by limits"
        verbose_name_plural = "requests counted by limits"
        indexes = [models.Index(fields=["organization_id"], name="limit_charge_organization")]

    def __str__(self) -> str:
        return str(self.reference)
