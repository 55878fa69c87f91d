"""Actions on bills: read all that are due, and import a file. Each compares the days that it changed."""
# alone: the entry of the task and of the command, above readings and comparison

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from apps.catalog.models import Provider
from apps.provider_bills import bill_files, comparison, readings
from apps.provider_bills.models import BillComparison, BillReading
from apps.provider_bills.stated_lines import InvalidBill


def read_due_bills(now: datetime) -> tuple[list[BillReading], list[BillComparison]]:
    """Read the bill of each provider whose key is set, and compare. Without keys nothing is called."""
    read = readings.read_bills(now)
    return read, comparison.compare_due(read, now)


def import_bill(provider: str, path: Path, now: datetime) -> tuple[BillReading, Sequence[BillComparison]]:
    """Store the lines of a file as a provider's bill, all or none, and compare. Raises InvalidBill and OSError."""
    if not Provider.objects.filter(id=provider).exists():
        raise InvalidBill(f"{provider[:40]!r} is no provider of the catalog")
    lines, origin = bill_files.read_file(path)
    if late := next((one for one in lines if one.ends_at > now), None):
        raise InvalidBill(f"the period until {late.ends_at.isoformat()} is not over")
    reading = readings.store(BillReading.objects.create(provider=provider, origin=origin), lines, None)
    return reading, comparison.compare_due([reading], now)
