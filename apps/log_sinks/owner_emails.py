"""E-mails to owners about sinks that were switched off: each sink stores its unsent notice.

If a process dies between sending and clearing the notice, the e-mail is sent twice; none is lost.
"""
# alone: tasks.py only starts work, which is elsewhere

from __future__ import annotations

from smtplib import SMTPException

import structlog
from django.conf import settings
from django.utils.translation import gettext, gettext_noop

from apps.log_sinks.models import LogSink
from apps.organizations.access import by_language, owner_addresses, send_in_languages
from apps.organizations.models import Organization

log = structlog.get_logger(__name__)

_SUBJECT = gettext_noop("The log sink {sink} of {organization} was switched off")
_TEXT = gettext_noop("""The log sink {sink} of {organization} has not accepted deliveries for three days, since
{since} UTC. It was switched off; new requests are not sent to it.

Last error: {error}

Fix the problem at {host}, then switch the sink on again, with new credentials if they were the cause:

{place}/app/o/{organization_id}/log-sinks

Rows that waited when it was switched off are sent then, unless they are older than five days.
""")


def tell_owners() -> int:
    """Send waiting notices; return for how many sinks. A notice that cannot be sent keeps waiting."""
    standing = Organization.objects.exclude(status=Organization.Status.DELETED)
    # A sink that was switched on again needs no notice.
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
    words = {
        "sink": sink.name,
        "organization": sink.organization.name,
        "since": f"{sink.failing_since:%Y-%m-%d %H:%M}",
        "error": sink.last_error,
        "host": sink.url.partition("://")[2].partition("/")[0],
        "place": settings.PUBLIC_URL,
        "organization_id": sink.organization_id,
    }

    def write() -> tuple[str, str]:
        return gettext(_SUBJECT).format(**words), gettext(_TEXT).format(**words)

    send_in_languages(by_language(owner_addresses(sink.organization_id)), write)
