"""The queue of log sinks and settlement: a row waits from the transaction that writes it, or not at all."""

from __future__ import annotations

import pytest

from apps.billing import ledger
from apps.destinations.credentials import encrypt_credentials
from apps.gateway.settlement import outbox
from apps.gateway.settlement.settle import settle
from apps.log_sinks.models import LogSink, WaitingRow
from apps.logs.models import RequestLog
from tests.log_sinks.sinks import CREDENTIALS
from tests.support.upstream import Caller, caller, sandbox_url

__all__ = ["caller", "sandbox_url"]


def test_settlement_queues_each_row_once_or_nothing(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    caller.chat()
    sink = LogSink.objects.create(
        organization_id=caller.organization_id,
        name="hook",
        kind="webhook",
        url="https://93.184.215.14/",
        encrypted_credentials=encrypt_credentials(CREDENTIALS["webhook"]),
    )
    messages = outbox.read_batch("test", 10, 1)
    with monkeypatch.context() as dying:
        dying.setattr(ledger, "charge", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            settle(messages)
    assert (RequestLog.objects.count(), WaitingRow.objects.count()) == (0, 0)
    assert (settle(messages), settle(messages)) == (1, 0)
    waiting = WaitingRow.objects.get()
    assert (waiting.sink_id, waiting.log_id, waiting.batch) == (sink.pk, RequestLog.objects.get().id, None)
