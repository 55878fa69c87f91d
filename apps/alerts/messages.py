"""Messages about alerts: the request of a webhook, Slack, Teams or PagerDuty, and the text of an e-mail;
and the credentials of each kind of destination, which are stored encrypted.

- Webhooks get JSON, signed as in Standard Webhooks (https://www.standardwebhooks.com).
- Slack and compatible services get blocks, Teams an adaptive card. Both show names of tenants as plain text.
- PagerDuty gets an event of its Events API v2: `trigger` for a fired alert, `resolve` for a resolved one, with the
  alert's id as `dedup_key`.

A message is made of a notice, which has the texts of the alert and the address of its page in the console.
Credentials never appear in logs or exceptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

import msgspec
from django.conf import settings
from django.utils.translation import gettext, ngettext

from apps.alerts.kind_names import PARAMETERS, KindName
from apps.alerts.models import AlertDelivery, AlertDestination
from apps.alerts.sentences import in_reader_language
from apps.destinations.credentials import SHOWN, SealedStruct, WebhookSecret
from apps.destinations.exchange import DeliveryRequest
from apps.kernel.ids import new_id, time_of
from apps.kernel.secrets.webhook_signature import signed_headers


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


# PagerDuty's limit of a summary, in characters.
_MAX_SUMMARY: Final = 1_024
_JSON: Final = {"Content-Type": "application/json"}


class Notice(NamedTuple):
    """A message about an alert. `id` is its own, `alert_id` the alert's; `url` is the page with the next step."""

    id: UUID
    alert_id: UUID
    organization_id: UUID
    organization: str
    kind: str
    subject: str
    severity: str
    is_resolved: bool
    title: str
    text: str
    url: str
    figures: dict[str, Any]
    fired_at: datetime
    resolved_at: datetime | None

    @property
    def heading(self) -> str:
        """The title, after `Resolved:` for a resolved alert."""
        return gettext("Resolved: {title}").format(title=self.title) if self.is_resolved else self.title

    def in_reader_language(self) -> Notice:
        """Return the message with title and text in the active language."""
        return self._replace(title=in_reader_language(self.title), text=in_reader_language(self.text))

    @property
    def body(self) -> str:
        """The facts; for a resolved alert, from when to when it was open."""
        if not self.is_resolved or self.resolved_at is None:
            return self.text
        words = gettext("Open from {start} to {end}.")
        return words.format(start=_moment(self.fired_at), end=_moment(self.resolved_at))


def webhook_request(url: str, credentials: WebhookSecret, notice: Notice, now: datetime) -> DeliveryRequest:
    """Return the request to a webhook, signed at `now`."""
    content = {
        "type": "alert.resolved" if notice.is_resolved else "alert.fired",
        "timestamp": _iso(notice.resolved_at or notice.fired_at),
        "data": {
            "id": str(notice.alert_id),
            "organizationId": str(notice.organization_id),
            "kind": notice.kind,
            "subject": notice.subject,
            "severity": notice.severity,
            "title": notice.title,
            "text": notice.text,
            "url": notice.url,
            "figures": notice.figures,
            "firedAt": _iso(notice.fired_at),
            "resolvedAt": _iso(notice.resolved_at),
        },
    }
    body = msgspec.json.encode(content)
    return DeliveryRequest("POST", url, {**_JSON, **signed_headers(credentials.key, str(notice.id), now, body)}, body)


def slack_request(url: str, credentials: IncomingWebhook, notice: Notice, now: datetime) -> DeliveryRequest:
    """Return the request to an incoming webhook of Slack; `url` and `now` are not needed."""
    text = (
        f"*{_for_slack(notice.heading)}*\n{_for_slack(notice.body)}\n<{notice.url}|{_for_slack(notice.organization)}>"
    )
    section = {"type": "section", "text": {"type": "mrkdwn", "text": text}}
    # `text` is what notifications show.
    return _post(credentials.url, {"text": _for_slack(notice.heading), "blocks": [section]})


def teams_request(url: str, credentials: IncomingWebhook, notice: Notice, now: datetime) -> DeliveryRequest:
    """Return the request to an incoming webhook of Teams; `url` and `now` are not needed."""
    heading = {"type": "TextRun", "text": notice.heading, "weight": "Bolder", "size": "Medium"}
    paragraphs = [
        [heading],
        [{"type": "TextRun", "text": notice.body}],
        [{"type": "TextRun", "text": notice.organization}],
    ]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        # Text runs, unlike text blocks, have no markup.
        "body": [{"type": "RichTextBlock", "inlines": inlines} for inlines in paragraphs],
        "actions": [{"type": "Action.OpenUrl", "title": "Open", "url": notice.url}],
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return _post(credentials.url, {"type": "message", "attachments": [attachment]})


def pagerduty_request(url: str, credentials: RoutingKey, notice: Notice, now: datetime) -> DeliveryRequest:
    """Return the request to PagerDuty's Events API; `now` is not needed."""
    event: dict[str, Any] = {
        "routing_key": credentials.routing_key,
        "event_action": "resolve" if notice.is_resolved else "trigger",
        "dedup_key": str(notice.alert_id),
    }
    if not notice.is_resolved:
        event |= {
            "client": "Model gateway",
            "client_url": notice.url,
            "links": [{"href": notice.url, "text": "Open in the gateway"}],
            "payload": {
                "summary": f"{notice.organization}: {notice.title}"[:_MAX_SUMMARY],
                "source": "model-gateway",
                "severity": notice.severity,
                "timestamp": _iso(notice.fired_at),
                "component": notice.subject or notice.kind,
                "class": notice.kind,
                "custom_details": {"text": notice.text, **notice.figures},
            },
        }
    return _post(url, event)


def email_of(organization: str, notices: Sequence[Notice], settings_url: str) -> tuple[str, str]:
    """Return subject and text of the e-mail about alerts of one organization."""
    headings = [one.heading for one in notices]
    several = ngettext("{number} alert", "{number} alerts", len(headings)).format(number=len(headings))
    subject = f"{organization}: {headings[0] if len(headings) == 1 else several}"
    parts = [f"{one.heading}\n\n{one.body}\n\n{one.url}" for one in notices]
    footer = gettext("You get this e-mail as an owner or admin of {organization}. Rules and e-mails are set here:")
    footer = f"{footer.format(organization=organization)}\n{settings_url}"
    # A line break in a name must not add e-mail headers.
    return " ".join(subject.split()), "\n\n\n".join([*parts, footer]) + "\n"


def _post(url: str, content: dict[str, Any]) -> DeliveryRequest:
    return DeliveryRequest("POST", url, dict(_JSON), msgspec.json.encode(content))


def _for_slack(text: str) -> str:
    """Return text without markup of Slack's."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat(timespec="milliseconds") if moment else None


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def notice_of(delivery: AlertDelivery) -> Notice:
    """Return the notice of a delivery, which was read with its alert and organization."""
    alert = delivery.alert
    return Notice(
        id=delivery.id,
        alert_id=alert.id,
        organization_id=alert.organization_id,
        organization=alert.organization.name,
        kind=alert.kind,
        subject=alert.subject,
        severity=PARAMETERS[KindName(alert.kind)].severity,
        is_resolved=delivery.phase == AlertDelivery.Phase.RESOLVED,
        title=alert.title,
        text=alert.text,
        url=console_url(alert.organization_id, alert.page),
        figures=alert.figures,
        fired_at=alert.fired_at,
        resolved_at=alert.resolved_at,
    )


def sample_of(destination: AlertDestination) -> Notice:
    """Return a made-up notice that is recognizable as one. Its severity is the lowest."""
    identifier = new_id()
    now = time_of(identifier)
    return Notice(
        id=identifier,
        alert_id=identifier,
        organization_id=destination.organization_id,
        organization=destination.organization.name,
        kind="test",
        subject="",
        severity="info",
        is_resolved=False,
        title=f"Test of the alert destination {destination.name}",
        text="A member of the organization sent this test. Nothing is wrong.",
        url=console_url(destination.organization_id, "alerts"),
        figures={},
        fired_at=now,
        resolved_at=None,
    )


def console_url(organization_id: UUID, page: str) -> str:
    """Return the address of an organization's page in the console."""
    return f"{settings.PUBLIC_URL}/app/o/{organization_id}/{page}"
