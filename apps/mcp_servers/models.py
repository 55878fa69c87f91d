"""MCP servers of organizations: columns and constraints.

What is sent to a server to be let in is never here in clear.
"""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from apps.kernel.ids import new_id
from apps.organizations.models import Organization

# Seconds that a server may take for one answer: least, most, and where nobody says.
SHORTEST_TIMEOUT, LONGEST_TIMEOUT, TIMEOUT = 1, 300, 60


class McpServer(models.Model):
    """A server of tools that an organization registered, with what it takes to be let in there, encrypted."""

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
    # What each tool was when it was allowed, by name (digests), and the names of those that were seen changed since:
    # `tool_pins.py`.
    tool_pins = models.JSONField(default=dict, db_default={}, editable=False, blank=True)
    changed_tools = models.JSONField(default=list, db_default=[], editable=False, blank=True)
    # Ids of projects whose keys may use it; null: every project's. Not a relation: what is left of a list when
    # projects go must never become "every".
    project_ids = models.JSONField(null=True, blank=True)
    timeout_seconds = models.PositiveSmallIntegerField(
        default=TIMEOUT, validators=[MinValueValidator(SHORTEST_TIMEOUT), MaxValueValidator(LONGEST_TIMEOUT)]
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
        """The masked credential; empty where there is none."""
        return f"...{self.last_four}" if self.last_four else ""
