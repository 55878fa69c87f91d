"""`script/chaos batch`: one large batch, while the processes that answer and settle its lines are killed over and over.

Exit 1 when a line is missing, told twice, or not recorded and charged exactly once. Ends what it started. The stack's
tests let a small batch run through the same.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import requests
from openai import OpenAI, OpenAIError

from tests.stack.books import Books, books_of
from tests.stack.product import Product

ENDPOINT = "/v1/chat/completions"
ENDED = {"completed", "failed", "expired", "cancelled"}
# Settings that answer a batch as fast as possible, and resume it soon after its worker is killed.
SETTINGS = {"BACKGROUND_LEASE": "2", "RATE_LIMIT_FREE": "0", "RATE_LIMIT_PRO": "0", "RATE_LIMIT_ENTERPRISE": "0"}
VICTIMS = {"worker": ("celery", "worker --pool"), "settler": ("manage.py", "settler")}


@dataclass
class BatchReport:
    """The outcome of a batch: its object, the lines of its output, and how often each process was killed."""

    told: Any
    results: list[dict[str, Any]]
    killed: Counter[str]
    seconds: float


def keep_content(product: Product) -> None:
    """Let the demo organization keep content, without which it has no batches."""
    changed = requests.patch(
        f"{product.url}/organization/{product.demo['organizationId']}",
        json={"retentionLevel": "retain"},
        headers={"Authorization": f"Bearer {product.demo['sessionToken']}"},
        timeout=10,
    )
    assert changed.status_code == 200, changed.text


def run_batch(product: Product, count: int, strikes: Sequence[str], patience: float) -> BatchReport:
    """Run a batch of so many lines, and kill the victims one after the other, evenly spread over its lines."""
    client = OpenAI(api_key=product.demo["apiKey"], base_url=f"{product.url}/v1", max_retries=5)
    content = "\n".join(json.dumps(_line(number)) for number in range(count)).encode()
    file = client.files.create(file=("lines.jsonl", content), purpose="batch")
    began = time.monotonic()
    batch = client.batches.create(input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h")
    killed, waiting = Counter[str](), list(strikes)
    while time.monotonic() - began < patience:
        # The killed process may be the one that answers.
        with contextlib.suppress(OpenAIError):
            batch = client.batches.retrieve(batch.id)
        if batch.status in ENDED:
            break
        counts = batch.request_counts
        share = (len(strikes) - len(waiting) + 1) / (len(strikes) + 1)
        if waiting and counts is not None and counts.completed + counts.failed >= share * count:
            victim = waiting.pop(0)
            product.kill(*VICTIMS[victim])
            killed[victim] += 1
        time.sleep(0.2)
    results = [] if batch.output_file_id is None else client.files.content(batch.output_file_id).text.splitlines()
    lines = [json.loads(text, parse_float=Decimal) for text in results]
    return BatchReport(batch, lines, killed, time.monotonic() - began)


def find_problems(report: BatchReport, books: Books, count: int) -> list[str]:
    """Return the problems in words; none when every line is there once and charged once."""
    told, problems = report.told, []
    counts = told.request_counts.model_dump()
    if (told.status, counts) != ("completed", {"total": count, "completed": count, "failed": 0}):
        problems.append(f"the batch is {told.status} with {counts}")
    if [result["custom_id"] for result in report.results] != [str(number) for number in range(count)]:
        problems.append("the output has not each line once, in order")
    stated = {result["id"]: result["response"]["body"]["usage"]["cost_usd_total"] for result in report.results}
    rows = [row for row in books.rows if row.request_id in stated]
    if Counter(row.request_id for row in rows) != Counter(stated.keys()):
        problems.append(f"{len(rows)} log rows for {len(stated)} lines")
    wrong = [row.request_id for row in rows if row.cost != Decimal(stated[row.request_id]) or row.swept]
    if wrong:
        problems.append(f"{len(wrong)} log rows differ from what was told, as {wrong[0]}")
    uncharged = [row.id for row in rows if books.ledger.get(("usage", row.id)) != (-row.cost, row.cost)]
    if uncharged:
        problems.append(f"{len(uncharged)} lines are not charged once, as {uncharged[0]}")
    if books.left or books.differences:
        problems.append(f"left over: {books.left}; differences: {books.differences}")
    return problems


def _line(number: int) -> dict[str, Any]:
    content = f"line {number} [[sandbox usage={17 + number % 83},{5 + number % 31}]]"
    body = {"model": "sandbox/echo", "messages": [{"role": "user", "content": content}]}
    return {"custom_id": str(number), "method": "POST", "url": ENDPOINT, "body": body}


def main() -> int:
    """Run a batch; return 1 when a promise was not kept."""
    words = argparse.ArgumentParser(prog="script/chaos batch", description=__doc__.splitlines()[0])
    words.add_argument("--lines", type=int, default=10_000)
    words.add_argument("--kills", type=int, default=6, help="of the worker and of the settler, each")
    words.add_argument("--patience", type=float, default=1_800.0, help="seconds that the batch may take")
    asked = words.parse_args()
    with TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        product = Product(Path(folder) / "home", **SETTINGS)
        try:
            keep_content(product)
            report = run_batch(product, asked.lines, ["worker", "settler"] * asked.kills, asked.patience)
            problems = find_problems(report, books_of(product, patience=120), asked.lines)
        finally:
            product.stop()
    print(f"{asked.lines} lines in {report.seconds:.0f} s; killed: {dict(report.killed)}")
    print("\n".join(problems) or "every line is there once and charged once")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
