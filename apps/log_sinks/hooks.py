"""Hooks of organizations: log sinks in the admin, their erasure, and the rotation of their credentials."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from apps.destinations.credentials import decrypt_credentials, encrypt_credentials
from apps.kernel.postgres.rows import delete_in_pieces
from apps.kernel.secrets.encryption import Rotated
from apps.log_sinks.access import SINKS
from apps.log_sinks.kinds import Credentials
from apps.log_sinks.models import LogSink, WaitingRow
from apps.organizations.models import Organization
from apps.organizations.operators.organization_tabs import Tab, link_to, list_of, moment


def _sinks(organization: Organization) -> Any:
    return LogSink.objects.filter(organization=organization).order_by("-id")


TABS = [
    Tab(
        "log-sinks",
        "Log sinks",
        "log_sinks.view_logsink",
        lambda row: list_of("log_sinks_logsink", organization__id__exact=row.pk),
        ("Name", "Kind", "Address", "Status", "Created"),
        _sinks,
        lambda row: (link_to(row), row.get_kind_display(), row.url, row.status, moment(row.created_at)),
    ),
]


def erase(organization_id: UUID) -> None:
    """Delete all sinks with their credentials and waiting rows."""
    sinks = LogSink.objects.filter(organization=organization_id)
    for sink_id in sinks.values_list("id", flat=True):
        delete_in_pieces(WaitingRow.objects.filter(sink_id=sink_id))
    sinks.delete()


# Name of the secrets for the operator.
WORDS = "credentials of log sinks"


def rotate() -> Rotated:
    """Encrypt every sink's credentials with the newest encryption key, so that older ones can be removed."""
    return SINKS.rotate(_reencrypt)


def _reencrypt(encrypted: bytes) -> bytes:
    return encrypt_credentials(decrypt_credentials(encrypted, Credentials))
