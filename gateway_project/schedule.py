"""The schedule: all scheduled tasks in one place, and what beat sends at its start.

The tasks are in each app's `tasks.py`; beat sends their names and loads none of them.
"""

from __future__ import annotations

from typing import Any, Final

import structlog
from celery import Celery
from celery.schedules import crontab
from celery.signals import beat_init
from kombu.exceptions import OperationalError

from apps.kernel.store_urls import address_of

log = structlog.get_logger(__name__)

# By name: the task, when it is sent (UTC), and the seconds after which it is dropped where no worker runs: then the
# next of its kind is due.
_SCHEDULE: Final[dict[str, tuple[str, crontab | float, int]]] = {
    "make-partitions": ("logs.make_partitions", crontab(minute=5), 3600),
    "roll-up-activity": ("logs.roll_up", crontab(), 60),
    "roll-up-refusals": ("logs.roll_up_refusals", crontab(), 60),
    "deliver-to-log-sinks": ("log_sinks.deliver_due", 10.0, 10),
    "purge-log-sinks": ("log_sinks.purge", crontab(minute=45), 3600),
    "evaluate-alerts": ("alerts.evaluate", crontab(), 60),
    "deliver-alerts": ("alerts.deliver_due", 10.0, 10),
    "email-alerts": ("alerts.send_emails", crontab(), 60),
    "purge-alerts": ("alerts.purge", crontab(minute=55), 3600),
    "blank-logs": ("logs.blank", crontab(minute="*/10"), 600),
    "expire-logs": ("logs.expire", crontab(hour=3, minute=20), 86_400),
    "move-logs": ("logs.move", crontab(hour=5, minute=20), 43_200),
    "index-log-text": ("logs.index_text", crontab(hour="1,7,13,19", minute=30), 21_600),
    "expire-violations": ("guardrails.expire", crontab(hour=3, minute=40), 86_400),
    "erase-organizations": ("organizations.erase_deleted", crontab(minute="*/5"), 300),
    "purge-responses": ("responses.purge", crontab(minute="*/10"), 600),
    "bring-in-responses": ("responses.bring_in", crontab(), 60),
    "work-on-batches": ("batches.work", 5.0, 5),
    "purge-files-and-batches": ("batches.purge", crontab(minute="*/10"), 600),
    "purge-codes-and-tokens": ("oauth.purge", crontab(minute=25), 3600),
    "refresh-own-models": ("keys.refresh_models", crontab(minute="*/10"), 600),
    "send-messages": ("organizations.send_messages", 15.0, 15),
    "sweep-idempotent-answers": ("organizations.sweep_idempotent_answers", crontab(minute=35), 3600),
    "top-up-automatically": ("billing.top_up_automatically", crontab(), 60),
    "recover-payments": ("billing.recover_payments", crontab(), 60),
    "tell-owners-of-log-sinks": ("log_sinks.tell_owners", crontab(), 60),
    "tell-owners": ("billing.tell_owners", crontab(), 60),
    "send-receipts": ("billing.send_receipts", crontab(), 60),
    "sync-subscriptions": ("billing.sync_subscriptions", crontab(minute="*/15"), 900),
    "propose-catalog-changes": ("catalog.propose", crontab(hour=5, minute=50), 43_200),
    "apply-scheduled-prices": ("catalog.apply_scheduled_prices", crontab(), 60),
    "pay-referrers": ("billing.pay_referrers", crontab(hour=1, minute=40), 86_400),
    "sweep-processor-events": ("billing.sweep_processor_events", crontab(hour=2, minute=50), 86_400),
    "purge-limits": ("limits.purge", crontab(hour=2, minute=20), 86_400),
    "reconcile": ("gateway.reconcile", crontab(hour=4, minute=10), 86_400),
    "read-clearing": ("gateway.read_clearing", crontab(), 60),
    "draw-balance-sheet": ("gateway.draw_balance_sheet", crontab(hour="*/6", minute=35), 21_600),
    "read-provider-bills": ("provider_bills.read", crontab(minute=15), 3600),
}
BEAT_SCHEDULE: Final = {
    name: {"task": task, "schedule": schedule, "options": {"expires": expires}}
    for name, (task, schedule, expires) in _SCHEDULE.items()
}


@beat_init.connect
def begin(sender: Any, **_: Any) -> None:
    """Make the partitions and a balance sheet at once: the schedule's next time may be hours away. `sender` is Celery's
    beat service."""
    # Here and not above: it reaches for the settings.
    from gateway_project.observability import task_metrics

    app: Celery = sender.app
    # A task is dropped when the next one of its kind is due.
    task_metrics.plan({task: expires for task, _, expires in _SCHEDULE.values()})
    try:
        for task in ("logs.make_partitions", "gateway.draw_balance_sheet"):
            app.send_task(task, expires=3600)
    except OperationalError as error:
        # Celery goes on trying; the tasks come again by their schedules.
        address = address_of(str(app.conf.broker_url))
        log.warning("beat.waiting", waits_for=f"CELERY_BROKER_URL {address}", error=type(error).__name__)
