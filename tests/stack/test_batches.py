"""Batches on the whole product: run by Celery; its worker and the settler are killed, and each line is charged once."""

from __future__ import annotations

import pytest
from anthropic import Anthropic

from tests.chaos.batches import find_problems, run_batch
from tests.stack.books import books_of
from tests.stack.product import Product, eventually

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]

LINES = 200


@pytest.fixture
def product(keeping_product: Product) -> Product:
    """The server whose processes are killed."""
    return keeping_product


def test_every_line_is_there_once_and_charged_once_whoever_is_killed(product: Product) -> None:
    report = run_batch(product, LINES, ["worker", "settler", "worker", "settler"], patience=120)
    assert report.killed == {"worker": 2, "settler": 2}
    assert find_problems(report, books_of(product), LINES) == []


def test_a_message_batch_is_run_too(product: Product) -> None:
    client = Anthropic(api_key=product.demo["apiKey"], base_url=product.url)
    messages = [{"role": "user", "content": "hello"}]
    params = {"model": "sandbox/echo", "max_tokens": 20, "messages": messages}
    made = client.messages.batches.create(requests=[{"custom_id": "a", "params": params}])  # type: ignore[typeddict-item] # plain values
    eventually(lambda: client.messages.batches.retrieve(made.id).processing_status == "ended")
    (result,) = client.messages.batches.results(made.id)
    assert (result.custom_id, result.result.type) == ("a", "succeeded")
