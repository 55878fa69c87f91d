"""Checks of waiting work and of the books: records, scheduled tasks, reconciliation, clearing accounts, bills.

Reads only.
"""
# alone: the checks of one topic; registry.py lists those of all of them

from __future__ import annotations

from collections.abc import Iterator

from django.utils import timezone

from apps.gateway.models import ClearingAccount, Reconciliation
from apps.gateway.settlement import clearing, dead_letters, outbox
from apps.kernel.money import plain
from apps.provider_bills import metrics as bill_metrics
from apps.provider_bills import readings
from gateway_project.diagnosis.check import Diagnosis
from gateway_project.observability import task_metrics

# Seconds that a record may wait, and after which no settler seems to run.
_LATE, _LOST = 30.0, 300.0
_LATE_RECONCILIATION_HOURS = 26


def find_queue() -> Iterator[Diagnosis]:
    """Yield how many records wait, for how long, and how many cannot be read."""
    depth, age = outbox.depth()
    finding = f"{depth} records wait, the oldest for {age:.0f} s" if depth else "no record waits"
    if age > _LOST:
        yield Diagnosis.error("queue", finding, "start a settler: `Procfile` has its command")
    elif age > _LATE:
        yield Diagnosis.warning("queue", finding, "look at the settler's log; another settler may run beside it")
    else:
        yield Diagnosis.ok("queue", finding)
    broken = dead_letters.count()
    if broken:
        yield Diagnosis.error(
            "queue", f"{broken} records cannot be read", "upgrade the settler: a newer one tries them again"
        )


def find_tasks() -> Iterator[Diagnosis]:
    """Yield which scheduled tasks are late."""
    states = task_metrics.read_states()
    late = [one.name for one in states if one.late]
    if not states:
        yield Diagnosis.warning(
            "tasks", "none has been scheduled yet", "start worker and beat: `Procfile` has their commands"
        )
    elif late:
        yield Diagnosis.warning("tasks", f"{', '.join(late)} late", "look at the logs of worker and beat")
    else:
        yield Diagnosis.ok("tasks", f"{len(states)} scheduled, none late")


def find_reconciliation() -> Iterator[Diagnosis]:
    """Yield what the last nightly reconciliation found, and how long ago."""
    last = Reconciliation.objects.filter(finished_at__isnull=False).order_by("-finished_at").first()
    if last is None or last.finished_at is None:
        yield Diagnosis.warning("reconciliation", "has not run yet; it does every night at 04:10 UTC")
        return
    hours = (timezone.now() - last.finished_at).total_seconds() / 3600
    finding = f"{last.found} differences in {last.compared} requests, {hours:.0f} h ago"
    if last.found or hours > _LATE_RECONCILIATION_HOURS:
        yield Diagnosis.warning(
            "reconciliation", finding, "look at Differences in the admin, and whether worker and beat run"
        )
    else:
        yield Diagnosis.ok("reconciliation", finding)


def find_clearing() -> Iterator[Diagnosis]:
    """Yield which money in flight is older than its bound, and whether the last balance sheet is balanced."""
    sheet, overdue = clearing.last_sheet(), [one.name for one in ClearingAccount.objects.all() if one.is_overdue]
    if overdue:
        yield Diagnosis.warning(
            "clearing",
            f"{', '.join(overdue)}: older than allowed",
            "look at Clearing accounts in the admin; docs/billing.md says what each may wait for",
        )
    if sheet is None:
        # Where no worker draws it, the scheduled tasks are late.
        if not overdue:
            yield Diagnosis.ok("clearing", "no balance sheet yet; the first one is drawn when worker and beat run")
    elif not sheet.is_balanced:
        yield Diagnosis.error(
            "clearing",
            f"the ledger differs from credits by {plain(sheet.ledger_difference)} USD, held amounts from holds by "
            f"{plain(sheet.holds_difference)} USD",
            "run `./manage.py check_ledger`, then `./manage.py resync_balances`",
        )
    elif not overdue:
        yield Diagnosis.ok("clearing", f"{plain(sheet.held + sheet.answered)} USD in flight, the balance sheet agrees")


def find_bills() -> Iterator[Diagnosis]:
    """Yield which providers' bills could not be read, and which differ from the request log by too much."""
    problems = readings.current_problems()
    above = {name: days for name, days in bill_metrics.days_above().items() if days}
    for provider, problem in sorted(problems.items()):
        yield Diagnosis.warning("bills", f"{provider}: {problem}", "check its administration key; see docs/billing.md")
    for provider, days in sorted(above.items()):
        finding = f"{provider}: {days} of {bill_metrics.ALERT_DAYS} days differ from the request log"
        yield Diagnosis.warning("bills", finding, "look at Differences from providers' bills in the admin")
    if not problems and not above:
        read = ", ".join(sorted(readings.known_until())) or "none is read"
        yield Diagnosis.ok("bills", f"no difference above the threshold ({read})")
