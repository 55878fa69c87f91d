"""Access control of log sinks: admins of an organization see and manage its sinks."""

from __future__ import annotations

from apps.log_sinks.models import LogSink
from apps.organizations.integrations.table import IntegrationTable

SINKS = IntegrationTable(
    model=LogSink,
    thing="log_sink",
    noun="log sink",
    order=("name",),
    masks=("masked_credentials",),
    noted_new=("name", "kind", "url", "options", "include_content", "masked_credentials"),
)
