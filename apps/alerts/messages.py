"""Messages about alerts: the request of a webhook, Slack, Teams or PagerDuty, and the text of an e-mail. Pure.

- Webhooks get JSON, signed as in Standard Webhooks (https://www.standardwebhooks.com).
- Slack and compatible services get blocks, Teams an adaptive card. Both show names of tenants as plain text.
- PagerDuty gets an event of its Events API v2: `trigger` for a fired alert, `resolve` for a resolved one, with the
  alert's id as `dedup_key`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from apps.alerts.credentials import IncomingWebhook, RoutingKey
from apps.destinations.credentials import WebhookSecret
from apps.destinations.exchange import DeliveryRequest
from apps.kernel.secrets.webhook_signature import signed_headers

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
        return f"Resolved: {self.title}" if self.is_resolved else self.title

    @property
    def body(self) -> str:
        """The facts; for a resolved alert, from when to when it was open."""
        if not self.is_resolved or self.resolved_at is None:
            return self.text
        return f"Open from {_moment(self.fired_at)} to {_moment(self.resolved_at)}."


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
    subject = f"{organization}: {headings[0] if len(headings) == 1 else f'{len(headings)} alerts'}"
    parts = [f"{one.heading}\n\n{one.body}\n\n{one.url}" for one in notices]
    footer = (
        f"You get this e-mail as an owner or admin of {organization}. Rules and e-mails are set here:\n{settings_url}"
    )
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
