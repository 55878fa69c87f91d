"""MCP servers of organizations: columns and constraints.

Credentials are stored encrypted.
"""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from apps.kernel.ids import new_id
from apps.organizations.models import Organization

# Timeout of one call in seconds: minimum, maximum, and default.
MIN_TIMEOUT, MAX_TIMEOUT, TIMEOUT = 1, 300, 60


class McpServer(models.Model):
    """An organization's MCP server, with encrypted credentials."""

    class Status(models.TextChoices):
        """`deleted` is soft; the credentials themselves are erased."""

        ACTIVE = "active"
        INACTIVE = "inactive"
        DELETED = "deleted"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="mcp_servers")
    name = models.CharField(max_length=40)
    url = models.URLField(max_length=500)
    encrypted_credentials = models.BinaryField(editable=False)
    last_four = models.CharField(max_length=4, editable=False, blank=True)
    # The names of the extra headers; their values are among the credentials.
    header_names = models.JSONField(default=list, editable=False, blank=True)
    # Names of tools that may be listed and called; null: all of them.
    allowed_tools = models.JSONField(null=True, blank=True)
    # Digest of each tool when it was allowed, by name, and the names of tools that have changed since:
    # `tool_pins.py`.
    tool_pins = models.JSONField(default=dict, db_default={}, editable=False, blank=True)
    changed_tools = models.JSONField(default=list, db_default=[], editable=False, blank=True)
    # Ids of projects whose keys may use it; null: every project's. Not a relation: deleting projects must never turn a
    # list into "every project".
    project_ids = models.JSONField(null=True, blank=True)
    timeout_seconds = models.PositiveSmallIntegerField(
        default=TIMEOUT, validators=[MinValueValidator(MIN_TIMEOUT), MaxValueValidator(MAX_TIMEOUT)]
    )
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.ACTIVE)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name = "MCP server"
        indexes = [models.Index(fields=["organization", "status"], name="mcp_server_organization")]
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "name"],
                condition=~models.Q(status="deleted"),
                name="mcp_server_name_unique",
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def masked_token(self) -> str:
        """The masked credential; empty if there is none."""
        return f"...{self.last_four}" if self.last_four else ""
