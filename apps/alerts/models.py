"""Tables of alerts: rules, destinations, alerts, their deliveries, readers, and the schedule of evaluation.

Credentials are stored encrypted.
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from apps.alerts.kind_names import PARAMETERS, KindName
from apps.destinations.models import Destination
from apps.kernel.ids import new_id
from apps.organizations.models import Membership, Organization


class AlertWatch(models.Model):
    """The schedule of one organization's evaluation. Created together with its default rules."""

    organization = models.OneToOneField(
        Organization, models.CASCADE, primary_key=True, related_name="alert_watch", editable=False
    )
    # Moved on before each evaluation, so that it is also the lease of the process that evaluates.
    next_evaluation_at = models.DateTimeField(db_default=Now(), db_index=True)

    class Meta:
        verbose_name = "alert schedule"

    def __str__(self) -> str:
        return f"next at {self.next_evaluation_at:%Y-%m-%d %H:%M:%S}"


class AlertRule(models.Model):
    """A condition that an organization is alerted of. `parameters` are those of its kind, amounts as decimal texts."""

    class Status(models.TextChoices):
        """An inactive rule fires no alerts. `deleted` is soft."""

        ACTIVE = "active"
        INACTIVE = "inactive"
        DELETED = "deleted"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="alert_rules")
    kind = models.CharField(max_length=24, choices=KindName.choices)
    parameters = models.JSONField(default=dict, blank=True)
    # Ids of the destinations that get its alerts beside e-mail, as texts; null: each.
    destination_ids = models.JSONField(null=True, blank=True)
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.ACTIVE)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name = "alert rule"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "kind", "parameters"], condition=~Q(status="deleted"), name="alert_rule_once"
            )
        ]

    def __str__(self) -> str:
        return self.summary

    @property
    def summary(self) -> str:
        """The rule in a few words, such as `Balance below 5 USD`."""
        return PARAMETERS[KindName(self.kind)].summary_of(self.parameters)


class AlertDestination(Destination):
    """A receiver of an organization's alerts beside e-mail."""

    class Kind(models.TextChoices):
        """How alerts are sent."""

        WEBHOOK = "webhook", "Webhook"
        SLACK = "slack", "Slack"
        TEAMS = "teams", "Microsoft Teams"
        PAGERDUTY = "pagerduty", "PagerDuty"

    organization = models.ForeignKey(Organization, models.CASCADE, related_name="alert_destinations")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    # Masked where the address itself is the secret: Slack and Teams.
    url = models.CharField(max_length=500)

    class Meta:
        verbose_name = "alert destination"
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "name"], condition=~Q(status="deleted"), name="alert_destination_name_unique"
            )
        ]


class Alert(models.Model):
    """One cause of which an organization is alerted: from when a rule's condition was met until it no longer is.

    A rule has at most one open alert for each subject. Alerts of events, such as a failed payment, are never resolved.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="alerts")
    rule = models.ForeignKey(AlertRule, models.CASCADE, related_name="alerts")
    kind = models.CharField(max_length=24, choices=KindName.choices)
    # The key, model, sink, … that the alert is about; empty for the organization itself.
    subject = models.CharField(max_length=300, blank=True)
    title = models.CharField(max_length=300)
    # The facts with numbers, then the next step.
    text = models.TextField()
    # The page of the console with the next step, after the organization's path.
    page = models.CharField(max_length=100, blank=True)
    # The numbers by name, as decimal texts or JSON numbers.
    figures = models.JSONField(default=dict, blank=True)
    # Whether owners get an e-mail about this cause from elsewhere.
    owners_told = models.BooleanField(default=False)
    fired_at = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["organization", "-id"], name="alert_newest"),
            models.Index(fields=["organization"], name="alert_open", condition=Q(resolved_at__isnull=True)),
            models.Index(fields=["fired_at"], name="alert_age"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "subject"], condition=Q(resolved_at__isnull=True), name="alert_once_per_cause"
            )
        ]

    def __str__(self) -> str:
        return self.title


class AlertDelivery(models.Model):
    """A message about an alert to one destination; without a destination, the e-mail to owners and admins.

    Created with the alert's change in one transaction. Its id identifies the message at the receiver.
    """

    class Phase(models.TextChoices):
        """The change of the alert."""

        FIRED = "fired"
        RESOLVED = "resolved"

    class Status(models.TextChoices):
        """`dropped`: it waited too long, or its destination was deleted."""

        WAITING = "waiting"
        SENT = "sent"
        DROPPED = "dropped"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    alert = models.ForeignKey(Alert, models.CASCADE, related_name="deliveries")
    destination = models.ForeignKey(AlertDestination, models.CASCADE, null=True, related_name="deliveries")
    phase = models.CharField(max_length=8, choices=Phase.choices)
    status = models.CharField(max_length=8, choices=Status.choices, default=Status.WAITING)
    created_at = models.DateTimeField(db_default=Now())
    # For e-mails: the lease of the process that sends it, then the time of the next attempt.
    next_attempt_at = models.DateTimeField(db_default=Now())
    sent_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "alert deliveries"
        indexes = [
            models.Index(fields=["destination", "id"], name="alert_delivery_waiting", condition=Q(status="waiting")),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["alert", "phase", "destination"], nulls_distinct=False, name="alert_delivery_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.phase} {self.alert_id}"


class AlertReader(models.Model):
    """A member's choices: e-mail or none, quiet hours, and the time up to which alerts count as read."""

    membership = models.OneToOneField(
        Membership, models.CASCADE, primary_key=True, related_name="alert_reader", editable=False
    )
    by_email = models.BooleanField(default=True)
    read_until = models.DateTimeField(null=True)
    # Daily hours without e-mails, over midnight where they begin later than they end; null: none.
    quiet_from = models.TimeField(null=True, blank=True)
    quiet_until = models.TimeField(null=True, blank=True)
    time_zone = models.CharField(max_length=64, default="UTC", db_default="UTC")
    # Since when e-mails wait for the end of the quiet hours; null: none waits.
    held_since = models.DateTimeField(null=True, blank=True)
    # The lease of the process that sends what waited, then the time of the next attempt.
    next_digest_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [
            models.Index(fields=["held_since"], name="alert_reader_held", condition=Q(held_since__isnull=False)),
        ]

    def __str__(self) -> str:
        return str(self.membership_id)

    def is_quiet_at(self, moment: datetime) -> bool:
        """Return whether a moment is in the quiet hours."""
        if self.quiet_from is None or self.quiet_until is None:
            return False
        now = moment.astimezone(ZoneInfo(self.time_zone)).time()
        if self.quiet_from <= self.quiet_until:
            return self.quiet_from <= now < self.quiet_until
        return now >= self.quiet_from or now < self.quiet_until
