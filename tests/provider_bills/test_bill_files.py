"""Bills in files: our columns and Google's export in CSV and JSON, and hostile files refused whole."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from apps.provider_bills import bill_files
from apps.provider_bills.bill_files import read_lines
from apps.provider_bills.models import BillComparison, BillLine, BillReading
from apps.provider_bills.stated_lines import InvalidBill, StatedLine

BEGIN = datetime(2026, 11, 25, 10, tzinfo=UTC)
END = BEGIN + timedelta(hours=1)
HEAD = "starts_at,ends_at,model,request_id,requests,input_tokens,output_tokens,cost"
ROW = "2026-11-25T10:00:00Z,2026-11-25T11:00:00Z,fox-1,req-1,1,100,20,0.5"
OURS = StatedLine("file", BEGIN, END, "fox-1", "req-1", 1, 100, None, None, 20, Decimal("0.5"))


def google(sku: str, amount: str, cost: str, **fields: Any) -> dict[str, Any]:
    """A row of Google Cloud's standard export."""
    usual = {
        "billing_account_id": "01AB",
        "service": {"id": "AEFD", "description": "Gemini API"},
        "sku": {"id": "1", "description": sku},
        "usage_start_time": "2026-11-25 10:00:00 UTC",
        "usage_end_time": "2026-11-25 11:00:00 UTC",
        "usage": {"amount": amount, "unit": "count"},
        "cost": cost,
        "currency": "USD",
        "credits": [],
    }
    return usual | fields


def test_our_columns_are_read_from_csv_and_json() -> None:
    fields = dict(zip(HEAD.split(","), ROW.split(","), strict=True))
    assert read_lines(f"{HEAD}\n{ROW}\n".encode()) == [OURS]
    assert read_lines(f"\ufeff{HEAD}\r\n{ROW}\r\n".encode()) == [OURS]
    assert read_lines(json.dumps([fields]).encode()) == [OURS]
    assert read_lines(f"{json.dumps(fields)}\n\n{json.dumps(fields)}\n".encode()) == [OURS, OURS]


def test_googles_export_is_read_with_its_credits() -> None:
    rows = [
        google("Generate content input token count gemini 2.5 flash text", "1200", "0.00036"),
        google("Gemini 2.5 Flash Cached Text Input Tokens", "300", "0.00002"),
        google("Gemini 2.5 Flash Text Output Tokens", "500", "0.00125", credits=[{"amount": -0.001, "name": "x"}]),
        google("N1 Predefined Instance Core", "7", "3.5"),
    ]
    expected = [
        StatedLine(
            *("file", BEGIN, END, "gemini-2.5-flash"),
            input_tokens=1200,
            cost=Decimal("0.00036"),
        ),
        StatedLine(
            "file", BEGIN, END, "gemini-2.5-flash", input_tokens=300, cached_tokens=300, cost=Decimal("0.00002")
        ),
        StatedLine("file", BEGIN, END, "gemini-2.5-flash", output_tokens=500, cost=Decimal("0.00025")),
    ]
    assert read_lines(json.dumps(rows).encode()) == expected
    assert read_lines("\n".join(map(json.dumps, rows)).encode()) == expected


def test_googles_export_is_read_from_csv() -> None:
    head = "usage_start_time,usage_end_time,sku_description,usage_amount,usage_unit,cost,currency,service_description"
    row = "2026-11-25 10:00:00 UTC,2026-11-25 11:00:00 UTC,Gemini 2.5 Pro Output Tokens,9,count,0.1,USD,Gemini API"
    assert read_lines(f"{head}\n{row}\n".encode()) == [
        StatedLine("file", BEGIN, END, "gemini-2.5-pro", output_tokens=9, cost=Decimal("0.1"))
    ]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "the file has no line of a model"),
        (HEAD.encode(), "the file has no line of a model"),
        (b"\xff\xfe", "the file is not UTF-8 text"),
        (b"[NaN]", "the file: not JSON"),
        (b"[1]", "a line is not a JSON object"),
        (b'{"a": 1}\n{', "line 1: 'a' is no column; the columns are"),
        (f"{HEAD}\n{ROW},more".encode(), "line 2: not as many fields as the first line has columns"),
        (f"{HEAD}\nx".encode(), "line 2: not as many fields as the first line has columns"),
        (f'{HEAD}\n"{ROW}'.encode(), "line 1: unexpected end of data"),
        (f"{HEAD}\n{ROW}\n{ROW}".replace("0.5", "NaN").encode(), "line 1: cost is 'NaN', not a number"),
        (
            f"{HEAD}\n{ROW}".replace("100", "1e9999999").encode(),
            "line 1: input_tokens is '1e9999999', which is too large",
        ),
        (f"{HEAD}\n{ROW}".replace("T11", "T09").encode(), "line 1: the period from"),
        (
            f"{HEAD}\n{ROW}".replace("2026-11-25T10", "yesterday").encode(),
            "line 1: starts_at is 'yesterday:00:00Z', not",
        ),
        (
            json.dumps([google("Gemini 2.5 Pro Output Tokens", "1", "1", currency="EUR")]).encode(),
            "line 1: currency is",
        ),
        (json.dumps([google("Gemini 2.5 Pro", "1", "1", credits=["x"])]).encode(), "line 1: credits has an entry"),
    ],
)
def test_hostile_files_are_refused(content: bytes, error: str) -> None:
    with pytest.raises(InvalidBill) as refused:
        read_lines(content)
    assert str(refused.value).startswith(error)


def test_a_file_with_more_lines_or_bytes_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bill_files, "MAX_LINES", 2)
    with pytest.raises(InvalidBill, match=r"^more than 2 lines$"):
        read_lines("\n".join([HEAD, ROW, ROW, ROW]).encode())
    monkeypatch.setattr(bill_files, "MAX_BYTES", 10)
    (tmp_path / "bill.csv").write_text(HEAD)
    with pytest.raises(InvalidBill, match=r"^the file has more than 10 bytes$"):
        bill_files.read_file(tmp_path / "bill.csv")


def run(*arguments: Any) -> str:
    """Return what the command prints."""
    out = StringIO()
    call_command("bill", *map(str, arguments), stdout=out)
    return out.getvalue()


@pytest.mark.django_db
class TestCommand:
    def test_a_file_is_imported_once_and_compared(self, tmp_path: Path) -> None:
        path = tmp_path / "bill.csv"
        path.write_text(f"{HEAD}\n{ROW}\n")
        assert run("import", path, "--provider", "google") == (
            "1 lines, 1 of them new or changed\ngoogle 2026-11-25: billed 0.5 USD, logged 0 USD: 1 outside\n"
        )
        assert run("import", path, "--provider", "google").startswith("1 lines, 0 of them new or changed\n")
        line = BillLine.objects.get()
        assert (line.provider, line.source, line.version, line.cost) == ("google", "file", 1, Decimal("0.5"))
        assert BillReading.objects.count() == 2
        assert BillReading.objects.earliest("id").origin.startswith("bill.csv ")
        assert BillComparison.objects.get().is_above is False

    @pytest.mark.parametrize(
        ("provider", "content", "error"),
        [
            ("nobody", f"{HEAD}\n{ROW}\n", "'nobody' is no provider of the catalog"),
            ("google", f"{HEAD}\n{ROW}\n{ROW}".replace("0.5", "1e99", 1), "line 1: cost is '1e99', which is too large"),
            (
                "google",
                f"{HEAD}\n{ROW}".replace("2026", "2090"),
                "the period until 2090-11-25T11:00:00+00:00 is not over",
            ),
        ],
    )
    def test_a_refused_file_changes_nothing(self, tmp_path: Path, provider: str, content: str, error: str) -> None:
        path = tmp_path / "bill.csv"
        path.write_text(content)
        with pytest.raises(CommandError) as refused:
            run("import", path, "--provider", provider)
        assert str(refused.value) == f"{path}: {error}"
        assert (BillLine.objects.count(), BillReading.objects.count(), BillComparison.objects.count()) == (0, 0, 0)

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(CommandError, match="No such file or directory"):
            run("import", tmp_path / "none.csv", "--provider", "google")

    def test_without_keys_nothing_is_read(self) -> None:
        with pytest.raises(CommandError, match="no provider's administration key is set"):
            run("read")
        assert BillReading.objects.count() == 0
