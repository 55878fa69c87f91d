"""An answer does not wait for the store to acknowledge its record: the record survives a crash in that moment."""

from __future__ import annotations

import os
import signal
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.stack.product import MONEY_STORE, Product, eventually

pytestmark = pytest.mark.stack


@pytest.fixture
def product(harmed_product: Product) -> Product:
    """The server parts of which are killed."""
    return harmed_product


# Answered half a second after it was asked, at a price.
LATE = "[[sandbox latency=500 usage=3000,300 tag=%s]]"


def answered_while_the_store_hangs(product: Product, request_id: str) -> int:
    """Have a request answered by a worker that the store does not hear meanwhile; return the store's process id."""
    answers: list[Any] = []
    asking = threading.Thread(
        target=lambda: answers.append(product.chat(LATE % request_id, request_id, model="sandbox/echo"))
    )
    asking.start()
    eventually(lambda: product.sandbox("GET", "/sandbox/requests", tag=request_id)["requests"])
    (store,) = product.processes(*MONEY_STORE)
    os.kill(store, signal.SIGSTOP)
    asking.join(10)
    assert [answer.status_code for answer in answers] == [200]
    return store


@pytest.mark.parametrize("victim", ["gunicorn", pytest.param("valkey-server", marks=pytest.mark.long)])
def test_an_answer_whose_record_nobody_has_heard_of_yet_is_charged_once(product: Product, victim: str) -> None:
    request_id = uuid4().hex
    before = Decimal(product.credits())
    store = answered_while_the_store_hangs(product, request_id)
    # The answer came before any process gave up waiting for the store.
    assert list((Path(product.environment["GATEWAY_HOME"]) / "spool").glob("*")) == []
    # The youngest of these is the worker; the store does not run, and is killed all the same.
    killed = product.kill(*MONEY_STORE) if victim == "valkey-server" else product.kill(victim)
    if victim == "valkey-server":
        assert killed == store
    else:
        os.kill(store, signal.SIGCONT)
    row = eventually(lambda: [one for one in product.all_logs() if one["requestId"] == request_id])
    assert [(one["hasError"], one["usedModel"]) for one in row] == [(False, "echo")]
    cost = Decimal(str(row[0]["cost"]))
    assert cost > 0
    eventually(lambda: Decimal(product.credits()) == before - cost)
    # No later sweep treats it as a request without an answer.
    assert product.chat("afterwards").status_code == 200
    assert product.manage("check_ledger") == "Every balance equals the sum of its ledger entries.\n"
    assert len([one for one in product.all_logs() if one["requestId"] == request_id]) == 1
