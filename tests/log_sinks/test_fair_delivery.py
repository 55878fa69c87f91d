"""Deliveries of several organizations: a crowd of one's sinks and rows keeps another's waiting for none of them."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from apps.log_sinks import actions
from apps.log_sinks.delivery import AT_ONCE, find_due
from apps.log_sinks.models import LogSink
from tests.log_sinks.sinks import log_row, make_sink
from tests.support.cast import World


def test_another_organizations_sink_is_among_the_first_two(world: World) -> None:
    crowd = [make_sink(world, "webhook", "https://example.com/hook", name=str(number)) for number in range(20)]
    other = make_sink(world, "webhook", "https://example.com/hook", name="other")
    LogSink.objects.filter(pk=other.pk).update(organization=world.elsewhere)
    for _ in range(20):
        log_row(world)
    log_row(world, world.elsewhere)
    due = find_due(timezone.now())
    assert (len(due), other.pk in due[:2]) == (AT_ONCE, True)
    # Though it was served later than all of the crowd.
    LogSink.objects.filter(pk=other.pk).update(leased_until=timezone.now() - timedelta(seconds=1))
    due = find_due(timezone.now())
    assert other.pk in due[:2]
    assert set(due) - {other.pk} <= {sink.pk for sink in crowd}


def test_one_organizations_sinks_leave_room_for_another() -> None:
    assert actions.MAX_SINKS <= AT_ONCE * 4 / 5
