"""Bills in files for `gateway bill import FILE`: CSV, JSON or JSON lines, of our own columns or Google Cloud's export.

Our columns are those of a line: `starts_at`, `ends_at`, `model`, `request_id`, `requests`, `input_tokens`,
`cached_tokens`, `cache_write_tokens`, `output_tokens`, `cost` (USD). Google's is Cloud Billing's standard export to
BigQuery, saved as CSV or JSON: `usage_start_time`, `usage_end_time`, `sku.description`, `usage.amount`, `usage.unit`,
`cost`, `currency`, `credits`
(https://docs.cloud.google.com/billing/docs/how-to/export-data-bigquery-tables/standard-usage). A model's name and the
kind of its tokens are taken from the SKU's description.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from apps.provider_bills.apis import read_json
from apps.provider_bills.stated_lines import (
    MAX_LINES,
    MAX_REQUEST_ID,
    InvalidBill,
    StatedLine,
    add,
    check_period,
    read_cost,
    read_count,
    read_moment,
    read_name,
)

# Bytes of a file; a day of a large deployment by hour and model has fewer than a tenth of it.
MAX_BYTES: Final = 50_000_000
_OURS: Final = frozenset(
    {"starts_at", "ends_at", "model", "request_id", "requests", "input_tokens", "cached_tokens"}
    | {"cache_write_tokens", "output_tokens", "cost"}
)
_REQUIRED: Final = frozenset({"starts_at", "ends_at"})
_GOOGLE: Final = "usage_start_time"
_GEMINI: Final = re.compile(r"gemini(?: \d+(?:\.\d+)?)?(?: (?:pro|flash|lite|ultra|nano|preview|image|live))*", re.I)
_TOKEN_UNITS: Final = frozenset({"count", "tokens", "token", "requests"})
# Characters of a field in a CSV file.
_MAX_FIELD: Final = 10_000


def read_file(path: Path) -> tuple[list[StatedLine], str]:
    """Return the lines of a file, and its origin: name and begin of its SHA-256. Raises InvalidBill and OSError."""
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise InvalidBill(f"the file has more than {MAX_BYTES:,} bytes")
    origin = f"{path.name[:200]} {hashlib.sha256(content).hexdigest()[:16]}"
    return read_lines(content), origin


def read_lines(content: bytes) -> list[StatedLine]:
    """Return the lines of a bill. Raises InvalidBill, which names the line and the field."""
    found: list[StatedLine] = []
    for number, row in enumerate(_rows(content), start=1):
        if number > MAX_LINES:
            raise InvalidBill(f"more than {MAX_LINES:,} lines")
        try:
            line = _google_line(row) if _GOOGLE in row else _own_line(row)
        except InvalidBill as error:
            raise InvalidBill(f"line {number}: {error}") from error
        if line is not None:
            found.append(line)
    if not found:
        raise InvalidBill("the file has no line of a model")
    return found


def _rows(content: bytes) -> Iterator[dict[str, Any]]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidBill("the file is not UTF-8 text") from error
    begin = text.lstrip()[:1]
    if begin == "[":
        document = read_json(text, "the file")
        yield from (_flat(one) for one in document)
    elif begin == "{":
        yield from (
            _flat(read_json(line, f"line {number}")) for number, line in enumerate(text.splitlines(), 1) if line
        )
    else:
        yield from _csv_rows(text)


def _csv_rows(text: str) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(_MAX_FIELD)
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            if None in row or None in row.values():
                raise InvalidBill(f"line {reader.line_num}: not as many fields as the first line has columns")
            # BigQuery's CSV joins the names of nested columns with `_` or `.`.
            yield {_dotted(name): value for name, value in row.items()}
    except csv.Error as error:
        raise InvalidBill(f"line {reader.line_num}: {error}") from error


def _dotted(name: str) -> str:
    for nested in ("sku_", "usage_", "service_"):
        rest = name.removeprefix(nested)
        if rest != name and rest in {"description", "amount", "unit"}:
            return f"{nested[:-1]}.{rest}"
    return name


def _flat(row: Any) -> dict[str, Any]:
    """Return a JSON row with the names of nested columns joined by dots."""
    if not isinstance(row, dict):
        raise InvalidBill("a line is not a JSON object")
    flat: dict[str, Any] = {}
    for name, value in row.items():
        flat |= {f"{name}.{own}": deep for own, deep in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _own_line(row: Mapping[str, Any]) -> StatedLine:
    if unknown := sorted(row.keys() - _OURS):
        raise InvalidBill(f"{unknown[0][:40]!r} is no column; the columns are {', '.join(sorted(_OURS))}")
    if missing := sorted(_REQUIRED - row.keys()):
        raise InvalidBill(f"{missing[0]} is missing")
    starts_at, ends_at = read_moment("starts_at", row["starts_at"]), read_moment("ends_at", row["ends_at"])
    check_period(starts_at, ends_at)
    return StatedLine(
        "file",
        starts_at,
        ends_at,
        model=read_name("model", row.get("model")),
        request_id=read_name("request_id", row.get("request_id"), MAX_REQUEST_ID),
        requests=read_count("requests", row.get("requests")),
        input_tokens=read_count("input_tokens", row.get("input_tokens")),
        cached_tokens=read_count("cached_tokens", row.get("cached_tokens")),
        cache_write_tokens=read_count("cache_write_tokens", row.get("cache_write_tokens")),
        output_tokens=read_count("output_tokens", row.get("output_tokens")),
        cost=read_cost("cost", row.get("cost")),
    )


def _google_line(row: Mapping[str, Any]) -> StatedLine | None:
    """Return the line of a SKU of a Gemini model; None for any other SKU of the account."""
    sku = read_name("sku.description", row.get("sku.description"), 1_000)
    found = _GEMINI.search(sku)
    if found is None:
        return None
    if row.get("currency") not in (None, "", "USD"):
        raise InvalidBill(f"currency is {str(row['currency'])[:10]!r}, not USD; export the bill in USD")
    starts_at = read_moment("usage_start_time", row.get("usage_start_time"))
    ends_at = read_moment("usage_end_time", row.get("usage_end_time"))
    check_period(starts_at, ends_at)
    cost = add(read_cost("cost", row.get("cost")), _credits(row.get("credits")))
    counts = _google_counts(sku.lower(), row)
    return StatedLine("file", starts_at, ends_at, model=found[0].lower().replace(" ", "-"), cost=cost, **counts)


def _google_counts(sku: str, row: Mapping[str, Any]) -> dict[str, Any]:
    if str(row.get("usage.unit", "")).lower() not in _TOKEN_UNITS or ("token" not in sku and "count" not in sku):
        return {}
    count = read_count("usage.amount", row.get("usage.amount"))
    if "cach" in sku:
        return {"input_tokens": count, "cached_tokens": count}
    if "output" in sku:
        return {"output_tokens": count}
    return {"input_tokens": count} if "input" in sku else {}


def _credits(stated: Any) -> Decimal | None:
    """Return the sum of a line's credits, which are negative: discounts, promotions, the free tier."""
    if not isinstance(stated, list):
        return None
    total: Decimal | None = None
    for one in stated:
        if not isinstance(one, dict):
            raise InvalidBill("credits has an entry that is not an object")
        total = add(total, read_cost("credits.amount", one.get("amount")))
    return total
