"""Background responses on the whole product: resumed in another worker, cancelled, and charged once when one dies."""

from __future__ import annotations

import os
import signal
from decimal import Decimal
from uuid import uuid4

import pytest
from openai import OpenAI

from tests.stack.product import Product, eventually

pytestmark = pytest.mark.stack

MODEL = "sandbox/echo"
ENDED = {"completed", "failed", "incomplete", "cancelled"}


@pytest.fixture
def product(keeping_product: Product) -> Product:
    """The server whose processes are killed."""
    return keeping_product


@pytest.fixture
def openai(product: Product) -> OpenAI:
    """The official client, with the demo key; a worker that dies breaks a connection now and then."""
    return OpenAI(api_key=product.demo["apiKey"], base_url=f"{product.url}/v1", max_retries=5)


def test_a_killed_workers_response_is_completed_streamed_to_its_end_and_charged_once(
    product: Product, openai: OpenAI
) -> None:
    tag = uuid4().hex
    stream = openai.responses.create(
        model=MODEL,
        input=f"hello [[sandbox words=30 gap=100 tag={tag}]]",
        background=True,
        stream=True,
        extra_headers={"x-request-id": tag},
    )
    seen = [next(stream) for _ in range(6)]
    stream.close()
    response_id = seen[0].response.id
    # Whichever has it: both.
    for pid in product.processes("gunicorn")[1:]:
        os.kill(pid, signal.SIGKILL)
    final = eventually(lambda: (found := openai.responses.retrieve(response_id)).status in ENDED and found, patience=60)
    assert (final.status, len(final.output_text.split())) == ("completed", 30)
    rest = list(openai.responses.retrieve(response_id, stream=True, starting_after=seen[-1].sequence_number))
    assert [event.sequence_number for event in rest] == list(range(6, 6 + len(rest)))
    assert rest[-1].type == "response.completed"
    assert len(product.sandbox("GET", "/sandbox/requests", tag=tag)["requests"]) == 2
    rows = eventually(lambda: [one for one in product.all_logs() if one["requestId"] == tag])
    assert [(row["statusCode"], row["hasError"], Decimal(str(row["cost"])) > 0) for row in rows] == [(200, False, True)]
    assert product.manage("check_ledger") == "Every balance equals the sum of its ledger entries.\n"


def test_cancelling_cuts_the_providers_stream_off(product: Product, openai: OpenAI) -> None:
    tag = uuid4().hex
    made = openai.responses.create(
        model=MODEL,
        input=f"hello [[sandbox words=200 gap=100 tag={tag}]]",
        background=True,
        extra_headers={"x-request-id": tag},
    )
    eventually(lambda: openai.responses.retrieve(made.id).status == "in_progress")
    assert openai.responses.cancel(made.id).status == "cancelled"
    row = product.log_of(tag)
    assert (row["canceled"], row["statusCode"]) == (True, 499)
    assert openai.responses.retrieve(made.id).status == "cancelled"
