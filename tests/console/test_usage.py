"""Usage in the console: by model, project, key and tag, as a table, a chart and a file."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from apps.logs.rollup import roll_up
from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import World, make_key
from tests.support.console_client import Visitor, page, words

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def keys(world: World) -> tuple[Any, Any]:
    """Two keys of two projects, each with requests, some of which are folded into their days."""
    other = world.acme.projects.create(name="Crawler")
    first, second = make_key(world.olivia, world.project, HOSTILE).key, make_key(world.olivia, other, "nightly").key
    tags = {"custom_headers": {"team": HOSTILE}, "prompt_tokens": 10, "completion_tokens": 4}
    write(entry(first, used_model=HOSTILE, cost=Decimal("0.5"), **tags))
    write(entry(first, used_model="gpt-5", cost=Decimal("0.25"), has_error=True, id=id_at(ago(days=1))))
    roll_up()
    write(entry(second, used_model="gpt-5", cost=Decimal("1.25"), source="web"))
    theirs = make_key(world.sam, world.elsewhere_project).key
    write(entry(theirs, used_model="secret-model", cost=Decimal(99), source="theirs"))
    return first, second


def rows(answer: Any) -> list[tuple[str, int, str]]:
    return [(name, one.requests, f"{one.cost.normalize():f}") for name, one, _ in answer.context["rows"]]


def test_each_dimension_adds_up(world: World, keys: tuple[Any, Any]) -> None:
    first, second = keys
    dana = Visitor(world.dana)
    expected = {
        "model": [("gpt-5", 2, "1.5"), (HOSTILE, 1, "0.5")],
        "project": [("Crawler", 1, "1.25"), ("Default Project", 2, "0.75")],
        "key": [(f"nightly ({second.masked_token})", 1, "1.25"), (f"{HOSTILE} ({first.masked_token})", 2, "0.75")],
        "tag": [("source: web", 1, "1.25"), (f"team: {HOSTILE}", 1, "0.5")],
    }
    for by, whole in expected.items():
        answer = dana.open(page(world.acme, "usage"), by=by)
        assert answer.status_code == 200
        assert rows(answer) == whole, by
        assert HOSTILE not in answer.content.decode(), by
        assert "secret-model" not in words(answer)


def test_a_project_alone_is_shown(world: World, keys: tuple[Any, Any]) -> None:
    shown = Visitor(world.dana).open(page(world.acme, "usage"), by="key", projectId=str(keys[1].project_id))
    assert [one[1:] for one in rows(shown)] == [(1, "1.25")]
    tags = Visitor(world.dana).open(page(world.acme, "usage"), by="tag", projectId=str(keys[1].project_id))
    assert rows(tags) == [("source: web", 1, "1.25")]


def test_the_chart_has_every_day_and_the_same_sums_as_the_table(world: World, keys: tuple[Any, Any]) -> None:
    chart = Visitor(world.dana).open(page(world.acme, "usage"), days="7").context["chart"]
    assert (len(chart["labels"]), chart["unit"]) == (7, "USD")
    assert {one["name"]: sum(one["values"]) for one in chart["series"]} == {"gpt-5": 1.5, HOSTILE: 0.5}
    requests = Visitor(world.dana).open(page(world.acme, "usage"), days="7", show="requests").context["chart"]
    assert {one["name"]: one["values"][-1] for one in requests["series"]} == {"gpt-5": 1, HOSTILE: 1}


def test_the_file_has_every_day_by_itself(world: World, keys: tuple[Any, Any]) -> None:
    answer = Visitor(world.dana).open(page(world.acme, "usage/export"), by="model", format="csv")
    lines = b"".join(answer.streaming_content).decode().splitlines()
    assert answer["Content-Disposition"] == 'attachment; filename="usage-by-model.csv"'
    found = [(line["name"], line["requests"], line["cost"]) for line in csv.DictReader(lines)]
    assert found == [("gpt-5", "1", "0.25"), ("gpt-5", "1", "1.25"), (HOSTILE, "1", "0.5")]


def test_what_makes_no_sense_is_told_and_strangers_see_nothing(world: World, keys: tuple[Any, Any]) -> None:
    dana, sam = Visitor(world.dana), Visitor(world.sam)
    for query in ({"days": "0"}, {"by": "colour"}, {"from": "2026-02-30"}):
        assert dana.open(page(world.acme, "usage"), **query).status_code == 400, query
    assert "by: " in words(dana.open(page(world.acme, "usage"), by="colour"))
    theirs = dana.open(page(world.acme, "usage"), projectId=str(world.elsewhere_project.id))
    assert (theirs.status_code, theirs.context["rows"]) == (400, [])
    for path in ("usage", "usage/export"):
        assert sam.open(page(world.acme, path)).status_code == 403


def test_days_that_can_have_no_usage_say_why(world: World, keys: tuple[Any, Any]) -> None:
    dana, today = Visitor(world.dana), datetime.now(UTC).date()
    to_come = dana.open(page(world.acme, "usage"), **{"from": str(today + timedelta(days=1))})
    assert to_come.status_code == 200
    assert f"These days are in the future Days are in UTC, where today is {today}" in words(to_come)
    gone = words(dana.open(page(world.acme, "usage"), **{"from": "2020-01-01", "to": "2020-02-01"}))
    assert f"the first available day is {today - timedelta(days=364)}." in gone


def test_days_are_chosen_by_their_ends(world: World, keys: tuple[Any, Any]) -> None:
    yesterday = str(datetime.now(UTC).date() - timedelta(days=1))
    shown = Visitor(world.dana).open(page(world.acme, "usage"), **{"from": yesterday, "to": yesterday})
    assert rows(shown) == [("gpt-5", 1, "0.25")]
    assert f'name="from" value="{yesterday}"' in shown.content.decode()


def test_models_that_begin_alike_are_told_apart(world: World) -> None:
    names = [f"accounts/fireworks/models/{'long-' * 12}{end}" for end in ("preview", "stable")]
    key = make_key(world.olivia, world.project).key
    write(*(entry(key, used_model=name, cost=Decimal(1)) for name in names))
    shown = Visitor(world.dana).open(page(world.acme, "usage"))
    assert sorted(one["name"] for one in shown.context["chart"]["series"]) == names
    assert all(name in words(shown) for name in names)
