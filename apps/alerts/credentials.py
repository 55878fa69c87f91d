"""Credentials of alert destinations: a type for each kind, stored encrypted.

They never appear in logs or exceptions.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from apps.destinations.credentials import SHOWN, SealedStruct, WebhookSecret


class IncomingWebhook(SealedStruct, frozen=True, tag="address"):
    """The secret address of an incoming webhook of Slack or Teams."""

    url: str

    @property
    def masked(self) -> str:
        """The displayable part."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}/...{self.url[-SHOWN:]}"

    @property
    def secrets(self) -> list[str]:
        """The values to redact."""
        parts = urlsplit(self.url)
        return [one for one in (self.url, parts.path.strip("/"), parts.query) if one]


class RoutingKey(SealedStruct, frozen=True, tag="pagerduty"):
    """The integration key of a service at PagerDuty."""

    routing_key: str

    @property
    def masked(self) -> str:
        """The displayable part."""
        return f"...{self.routing_key[-SHOWN:]}"

    @property
    def secrets(self) -> list[str]:
        """The values to redact."""
        return [self.routing_key]


Credentials = WebhookSecret | IncomingWebhook | RoutingKey
