"""The columns that all destinations share. The credentials are stored encrypted."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from django.db import models
from django.db.models.functions import Now

from apps.kernel.ids import new_id
from apps.organizations.models import Organization


class Destination(models.Model):
    """An address of an organization that the gateway delivers to, with encrypted credentials and delivery state.

    A subclass adds `organization` and `kind`.
    """

    class Status(models.TextChoices):
        """`failed`: switched off by the gateway. `deleted` is soft; the credentials themselves are erased."""

        ACTIVE = "active"
        INACTIVE = "inactive"
        FAILED = "failed"
        DELETED = "deleted"

    if TYPE_CHECKING:
        organization: models.ForeignKey[Organization, Organization]
        organization_id: UUID
        kind: models.CharField[str, str]

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=100)
    encrypted_credentials = models.BinaryField(editable=False)
    # The public part of the credentials, or their last characters.
    masked_credentials = models.CharField(max_length=140, editable=False, blank=True)
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.ACTIVE)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    # End of the current lease; in the past, the end of the last run.
    leased_until = models.DateTimeField(null=True, editable=False)
    next_attempt_at = models.DateTimeField(db_default=Now(), editable=False)
    # Consecutive failures; `failing_since` is the first of them.
    failures = models.PositiveIntegerField(default=0, editable=False)
    failing_since = models.DateTimeField(null=True, editable=False)
    last_error = models.CharField(max_length=500, blank=True, editable=False)
    last_error_at = models.DateTimeField(null=True, editable=False)
    last_delivered_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.name

    def switch_off(self) -> list[str]:
        """Set the status `failed`; return the names of the changed columns. Does not save."""
        self.status = self.Status.FAILED
        return ["status"]
