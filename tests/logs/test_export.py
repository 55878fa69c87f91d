"""Logs as a file: all that a query finds, page by page, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from typing import Any

import pytest

from apps.keys.actions import CreatedKey
from apps.logs import export
from apps.logs.access import scope_of_key
from apps.logs.export import find_pages
from apps.logs.query import LogFilters
from tests.logs.entries import FULL, ago, entry, id_at, write
from tests.support.cast import Caller, World, make_key, signed_in


@pytest.fixture
def created(world: World) -> CreatedKey:
    """A key of Acme's default project."""
    return make_key(world.olivia, world.project)


@pytest.fixture
def caller(created: CreatedKey) -> Caller:
    """A caller with that key."""
    return Caller(created.token)


def lines(caller: Caller, **query: str) -> list[dict[str, Any]]:
    """Return the entries of an export as JSON lines; decimals stay decimals."""
    response = caller.get("/logs/export", format="jsonl", **query)
    assert (response.status_code, response["Content-Type"]) == (200, "application/jsonl")
    assert response["Content-Disposition"] == 'attachment; filename="logs.jsonl"'
    return [json.loads(line, parse_float=Decimal) for line in response.getvalue().splitlines()]


def table(caller: Caller, **query: str) -> list[dict[str, str]]:
    """Return the entries of an export as CSV."""
    response = caller.get("/logs/export", **query)
    assert (response.status_code, response["Content-Type"]) == (200, "text/csv; charset=utf-8")
    assert response["Content-Disposition"] == 'attachment; filename="logs.csv"'
    return list(csv.DictReader(io.StringIO(response.getvalue().decode(), newline="")))


def listed(caller: Caller, **query: str) -> list[dict[str, Any]]:
    """Return the entries of a page of `GET /logs`."""
    return list(json.loads(caller.get("/logs", **query).content, parse_float=Decimal)["logs"])


@pytest.mark.parametrize("order", ["createdAt_desc", "createdAt_asc"])
def test_it_holds_what_the_log_shows(caller: Caller, created: CreatedKey, order: str) -> None:
    write(*(entry(created.key, **FULL, id=id_at(ago(minutes=minutes))) for minutes in range(1, 40)))
    shown = listed(caller, limit="100", orderBy=order)
    assert len(shown) == 39
    assert lines(caller, orderBy=order) == shown
    rows = table(caller, orderBy=order)
    assert [list(row) for row in rows] == [list(shown[0])] * 39
    assert [row["id"] for row in rows] == [one["id"] for one in shown]
    assert [Decimal(row["cost"]) for row in rows] == [one["cost"] for one in shown]
    assert [json.loads(row["messages"]) for row in rows] == [one["messages"] for one in shown]
    assert rows[0]["content"] == shown[0]["content"]
    assert (rows[0]["createdAt"], rows[0]["streamed"], rows[0]["promptTokens"]) == (
        shown[0]["createdAt"],
        "true",
        shown[0]["promptTokens"],
    )


def test_the_filters_are_those_of_the_log(caller: Caller, created: CreatedKey) -> None:
    write(
        *(entry(created.key, used_model=name, id=id_at(ago(minutes=5))) for name in ("gpt-5", "claude")),
        entry(created.key, used_model="claude", id=id_at(ago(days=2))),
    )
    assert [one["usedModel"] for one in lines(caller, model="gpt-5")] == ["gpt-5"]
    assert len(lines(caller, model="claude", startDate=ago(hours=1).isoformat())) == 1
    assert lines(caller, source="nobody") == []
    assert table(caller, source="nobody") == []


def test_who_may_is_as_with_the_log(world: World, caller: Caller, created: CreatedKey) -> None:
    write(entry(created.key))
    assert [len(lines(signed_in(user))) for user in (world.olivia, world.dana, world.sam)] == [1, 1, 0]
    for query in ({"orgId": str(world.elsewhere.id)}, {"projectId": str(world.elsewhere_project.id)}):
        response = caller.get("/logs/export", **query)
        assert (response.status_code, response.json()["error"]) == (403, True)
    assert Caller().get("/logs/export").status_code == 401
    for query in ({"format": "xls"}, {"orderBy": "cost"}, {"startDate": "soon"}):
        assert caller.get("/logs/export", **query).status_code == 400


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+1 (555)", "'+1 (555)"),
        ("-cmd|' /C calc'!A0", "'-cmd|' /C calc'!A0"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1+1", "'\t=1+1"),
        ("\r\n =1+1", "'\r\n =1+1"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ("-12.5", "-12.5"),
        ('plain, "quoted"\nand long', 'plain, "quoted"\nand long'),
        ("a=b", "a=b"),
    ],
)
def test_no_cell_is_a_formula(caller: Caller, created: CreatedKey, text: str, cell: str) -> None:
    write(entry(created.key, content=text, source=text, custom_headers={"team": text}))
    [row] = table(caller)
    assert (row["content"], row["source"]) == (cell, cell)
    assert json.loads(row["customHeaders"]) == {"team": text}
    # For programs nothing is changed.
    [line] = lines(caller)
    assert line["content"] == text


def test_pages_are_as_large_as_their_rows_are_small(
    world: World, created: CreatedKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "PAGE_BYTES", 10_000)
    monkeypatch.setattr(export, "FIRST_PAGE", 2)
    monkeypatch.setattr(export, "LARGEST_PAGE", 8)
    contents = ["small"] * 22 + ["x" * 9_000] * 12
    write(
        *(
            entry(created.key, id=id_at(ago(minutes=minutes)), content=text)
            for minutes, text in enumerate(contents, start=1)
        )
    )
    pages = find_pages(scope_of_key(created.key, ago()), LogFilters(), ascending=False)
    assert [len(page) for page in pages] == [2, 4, 8, 8, 8, 1, 1, 1, 1]


def test_rows_that_come_meanwhile_do_not_keep_it_going(world: World, created: CreatedKey) -> None:
    write(entry(created.key, id=id_at(ago(minutes=1))))
    pages = find_pages(scope_of_key(created.key, ago()), LogFilters(), ascending=True)
    first = next(pages)
    write(entry(created.key, id=id_at(ago(minutes=-1))))
    assert (len(first), list(pages)) == (1, [])
