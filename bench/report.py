"""Figures for people: a table, bars, a comparison with an earlier run, a drawing."""

from __future__ import annotations

from html import escape
from typing import Any

Row = dict[str, Any]
_BAR = 40


def show(rows: list[Row]) -> None:
    """Print the table, what stands out, and bars of the throughput at 32 connections."""
    print(f"{'':24}{'':11}{'conns':>6}{'req/s':>9}{'p50 ms':>9}{'p99 ms':>9}{'added p50':>10}{'added p99':>10}", end="")
    print(f"{'CPU ms':>9}{'MB':>7}{'failed':>8}")
    alone = {_key(row): row for row in rows if row["what"] == "upstream alone" and "p50_ms" in row}
    for row in rows:
        if "p50_ms" not in row or row["kind"] == "turns":
            continue
        base = alone.get(_key(row), row)
        if "upstream_p50_ms" in row:
            base = {"p50_ms": row["upstream_p50_ms"], "p99_ms": row["upstream_p99_ms"]}
        pace = f" at {row['rate']:.0f}/s" if "rate" in row else ""
        print(
            f"{row['what'][:23]:24}{row['kind']:11}{row['connections']:>6}{row['per_second']:>9.0f}{row['p50_ms']:>9.2f}"
            f"{row['p99_ms']:>9.2f}{row['p50_ms'] - base['p50_ms']:>10.2f}{row['p99_ms'] - base['p99_ms']:>10.2f}"
            f"{row['cpu_ms']:>9.3f}{row['memory_mb']:>7.0f}{row['failures']:>8.0f}{pace}"
        )
    for row in rows:
        if row["kind"] == "records":
            print(f"{row['what']}: {row['dropped']:.0f} records dropped")
        if row["kind"] == "soak":
            print(f"{row['what']}: {row['requests']:>10.0f} requests {row['memory_mb']:7.1f} MB")
        if row["kind"] == "scaling":
            print(
                f"{row['what']}, {row['workers']} worker(s), {row['connections']} connections: {row['cpu_ms']:.3f} ms "
                f"of CPU a request, {row['per_second']:.0f}/s"
            )
    _turns(rows)
    _bars(rows)


def _turns(rows: list[Row]) -> None:
    """Print the measurements by turns: how many times a rival's throughput ours is, and what we add at ease."""
    ours: Row = {}
    for row in rows:
        if row["kind"] == "turns":
            if row["turn"] != ours.get("turn"):
                print(f"by turns, {row['turn']}:")
                ours = row
            times = "" if row is ours else f", the gateway {ours['per_second'] / row['per_second']:.2f} times that"
            print(
                f"  {row['what'][:23]:24}{row['per_second']:>6.0f}/s, p50 {row['p50_ms']:.2f}, "
                f"p99 {row['p99_ms']:.1f}, first byte {row['first_byte_p50_ms']:.2f} ms; "
                f"{row['cpu_ms']:.3f} ms of CPU, {row['memory_mb']:.0f} MB{times}"
            )
        if row["kind"] == "easy":
            print(
                f"by turns at {row['rate']:.0f}/s, {row['windows']} windows: the gateway adds "
                f"{row['added_p50_ms']:.1f} ms (p50), {row['added_p99_ms']:.1f} ms (p99)"
            )


def _bars(rows: list[Row]) -> None:
    at = [row for row in rows if row.get("connections") == 32 and row["kind"] == "plain" and "rate" not in row]
    most = max((row["per_second"] for row in at if row["what"] != "upstream alone"), default=0)
    for row in at:
        if row["what"] != "upstream alone":
            print(f"{row['what'][:23]:24}{'█' * round(row['per_second'] / most * _BAR)} {row['per_second']:.0f}/s")


def compare(rows: list[Row], earlier: list[Row]) -> None:
    """Print what changed since an earlier run, in percent of its figures."""
    before = {(row["what"], _key(row)): row for row in earlier if "p50_ms" in row}
    print("against the earlier run:")
    for row in rows:
        known = before.get((row["what"], _key(row))) if "p50_ms" in row else None
        if known is not None:
            changes = (
                f"{name} {(row[figure] / known[figure] - 1) * 100:+.0f}%"
                for name, figure in (("req/s", "per_second"), ("CPU", "cpu_ms"), ("p99", "p99_ms"))
            )
            print(f"  {row['what'][:23]:24}{row['kind']:11}{row['connections']:>5}  {'  '.join(changes)}")


def drawn(rows: list[Row]) -> str:
    """Return bars of throughput and processor time as an SVG picture."""
    at = [
        row
        for row in rows
        if row.get("connections") == 32
        and row["kind"] in _COLORS
        and "rate" not in row
        and row["what"] != "upstream alone"
    ]
    lines = []
    tops = {kind: max((row["per_second"] for row in at if row["kind"] == kind), default=1) for kind in _COLORS}
    for number, row in enumerate(at):
        y = 40 + number * 26
        width = row["per_second"] / tops[row["kind"]] * 380
        label = f"{row['what']}, {row['kind']}"
        words = f"{row['per_second']:.0f}/s, {row['cpu_ms']:.2f} ms of CPU"
        lines.append(f'<text x="230" y="{y + 14}" text-anchor="end">{escape(label)}</text>')
        lines.append(f'<rect x="240" y="{y}" width="{width:.0f}" height="18" fill="{_COLORS[row["kind"]]}"/>')
        lines.append(f'<text x="{width + 248:.0f}" y="{y + 14}">{escape(words)}</text>')
    height = 60 + len(at) * 26
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="820" height="{height}" font-family="sans-serif" '
        f'font-size="12"><rect width="820" height="{height}" fill="white"/><text x="10" y="22" font-size="14">'
        f"Requests a second on one core, 32 connections</text>{''.join(lines)}</svg>\n"
    )


_COLORS = {"plain": "#3b6fb6", "stream": "#7fb069", "embeddings": "#c97b3d"}


def _key(row: Row) -> tuple[str, int, bool]:
    return row["kind"], row.get("connections", 0), "rate" in row
