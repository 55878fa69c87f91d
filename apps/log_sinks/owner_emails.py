"""E-mail to owners about sinks that were switched off: each sink keeps its notice until it is sent.

Knows the words. A process that dies after sending and before forgetting sends twice; none is lost. Must never hold up
a delivery.
"""

from __future__ import annotations

from smtplib import SMTPException

import structlog
from django.conf import settings
from django.core.mail import EmailMessage

from apps.log_sinks.models import LogSink
from apps.organizations.models import Organization
from apps.organizations.owners import owner_addresses

log = structlog.get_logger(__name__)

_SUBJECT = "The log sink {sink} of {organization} was switched off"
_TEXT = """The log sink {sink} of {organization} did not take what it was sent for three days, the first time on
{since:%Y-%m-%d %H:%M} UTC. So it was switched off, and requests that are made from now on are not sent to it.

It said last: {error}

See that {host} takes what it is sent. Then switch the sink on again, with other credentials where they were the reason:

{place}/app/o/{organization_id}/log-sinks

What was waiting when it was switched off is sent then, unless it has waited for more than five days.
"""


def tell_owners() -> int:
    """Send what is waiting to be told; return how many sinks were told of. What cannot be sent stays."""
    standing = Organization.objects.exclude(status=Organization.Status.DELETED)
    # One that was switched on again meanwhile is no news.
    off = LogSink.objects.filter(disabled_notice_due=True, status=LogSink.Status.FAILED, organization__in=standing)
    sent = 0
    for sink in off.select_related("organization").order_by("id"):
        try:
            _send(sink)
        except (OSError, SMTPException) as error:
            log.warning("log_sinks.owners_not_told", sink=str(sink.pk), error=type(error).__name__)
            continue
        sent += LogSink.objects.filter(pk=sink.pk).update(disabled_notice_due=False)
    return sent


def _send(sink: LogSink) -> None:
    addresses = sorted(owner_addresses(sink.organization_id))
    if not addresses:
        return
    names = {"sink": sink.name, "organization": sink.organization.name}
    # A name with a line break is not to write headers of its own.
    subject = " ".join(_SUBJECT.format(**names).split())
    text = _TEXT.format(
        **names,
        since=sink.failing_since,
        error=sink.last_error,
        host=sink.url.partition("://")[2].partition("/")[0],
        place=settings.PUBLIC_URL,
        organization_id=sink.organization_id,
    )
    EmailMessage(subject, text, bcc=addresses).send()
