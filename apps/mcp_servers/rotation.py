"""Rotation: credentials of MCP servers are sealed anew with the newest encryption key."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction

from apps.kernel.encryption import UnreadableSecretError
from apps.mcp_servers.credentials import seal, unseal
from apps.mcp_servers.models import McpServer

# What is sealed, in words for whoever rotates.
WORDS = "credentials of MCP servers"


@dataclass(frozen=True, slots=True)
class RotatedServers:
    """How many were sealed anew, and the ids of servers whose credentials no key opens."""

    count: int
    unreadable: list[str]


def rotate() -> RotatedServers:
    """Seal every server's credentials with the newest encryption key, so that older ones can be taken away."""
    count, unreadable = 0, []
    living = McpServer.objects.exclude(status=McpServer.Status.DELETED)
    for identifier in living.order_by("id").values_list("id", flat=True):
        with transaction.atomic():
            row = living.select_for_update(no_key=True).filter(pk=identifier).first()
            if row is None:
                continue
            try:
                row.encrypted_credentials = seal(unseal(bytes(row.encrypted_credentials)))
            except UnreadableSecretError:
                unreadable.append(str(identifier))
                continue
            row.save(update_fields=["encrypted_credentials"])
            count += 1
    return RotatedServers(count, unreadable)
