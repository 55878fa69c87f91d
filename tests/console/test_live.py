"""Live updates: counts of the requests that a page does not have, who may follow, how many, and the end of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from inspect import GEN_CREATED, getgeneratorstate
from typing import Any

import pytest

from apps.console.pages.logs import live
from apps.kernel.concurrency.fairness import FairShare
from apps.logs import watch as watching
from apps.logs.watch import SESSION_TURN
from apps.organizations.models import Membership
from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import World, make_key
from tests.support.console_client import Visitor, page


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look as often as a stream goes round; streams and watches that other tests left open are not counted."""
    for stream in [stream for own in live._streams.values() for stream in own]:
        stream.close()
    monkeypatch.setattr(watching, "_watches", {})
    monkeypatch.setattr(live, "PAUSE", 0.001)
    monkeypatch.setattr(watching, "PAUSE", 0.0)


@pytest.fixture
def key(world: World) -> Any:
    return make_key(world.olivia, world.project).key


def follow(world: World, visitor: Visitor, **query: str) -> Any:
    answer = visitor.open(page(world.acme, "logs/live"), **query)
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
    return answer


def leave(answer: Any) -> None:
    """Leave a stream as a client does: the server closes it."""
    if getgeneratorstate(answer._iterator) == GEN_CREATED:
        next(answer._iterator)
    answer._iterator.close()


def events(answer: Any) -> Iterator[tuple[str, int]]:
    """Yield the id and the count of each event."""
    for piece in answer.streaming_content:
        lines = dict(line.split(": ", 1) for line in piece.decode().splitlines() if ": " in line)
        if lines.get("event") == "requests":
            yield lines["id"], json.loads(lines["data"])["count"]


def test_a_stream_counts_what_the_page_does_not_have(world: World, key: Any) -> None:
    [newest] = write(entry(key, id=id_at(ago(minutes=1))))
    [missed] = write(entry(key, used_model="gpt-5"))
    answer = follow(world, Visitor(world.dana), newest=str(newest), model="gpt-5")
    told = events(answer)
    assert next(told) == (str(missed), 1)
    write(entry(key, used_model="other"), entry(key, id=id_at(ago(seconds=30)), used_model="gpt-5"))
    assert next(told)[1] == 2
    leave(answer)
    assert watching._watches == {}


def test_the_next_stream_goes_on_behind_the_last_event(world: World, key: Any) -> None:
    first, second = write(entry(key, id=id_at(ago(minutes=2))), entry(key, id=id_at(ago(minutes=1))))
    dana = Visitor(world.dana)
    answer = dana.client.get(
        page(world.acme, "logs/live"), {"newest": str(first)}, headers={"Last-Event-ID": str(second)}
    )
    told = events(answer)
    write(entry(key))
    assert next(told)[1] == 1
    leave(answer)


@pytest.mark.parametrize("end", ["session", "membership"])
def test_a_stream_ends_with_its_session_or_membership(world: World, key: Any, end: str) -> None:
    answer = follow(world, Visitor(world.dana))
    pieces = iter(answer.streaming_content)
    assert next(pieces) == b"retry: 3000\n\n"
    if end == "session":
        world.dana.auth_token_set.all().delete()
    else:
        Membership.objects.filter(user=world.dana).delete()
    write(entry(key))
    assert not any(b"event" in piece for piece in list(pieces)[SESSION_TURN:])
    assert watching._watches == {}


def test_a_stream_ends_after_its_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LIFETIME", 0.0)
    answer = follow(world, Visitor(world.dana))
    assert list(answer.streaming_content) == [b"retry: 3000\n\n"]
    assert watching._watches == {}


def test_an_organization_has_so_many_streams(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "OF_ORGANIZATIONS", FairShare(10, 2, "live pages"))
    opened = [follow(world, Visitor(world.dana)), follow(world, Visitor(world.olivia))]
    assert Visitor(world.adam).open(page(world.acme, "logs/live")).status_code == 429
    # The refused stream took no place.
    leave(opened.pop())
    opened.append(follow(world, Visitor(world.adam)))
    for one in opened:
        leave(one)
    assert (watching._watches, live._streams) == ({}, {})


def test_a_persons_newest_stream_ends_the_oldest(world: World, key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person who pages through the log leaves streams behind whose end the server has not noticed yet."""
    monkeypatch.setattr(live, "OF_ONE_PERSON", 2)
    [shown] = write(entry(key, id=id_at(ago(minutes=1))))
    others = follow(world, Visitor(world.olivia), newest=str(shown))
    oldest, older, newest = (follow(world, Visitor(world.dana), newest=str(shown)) for _ in range(3))
    assert list(oldest.streaming_content) == [b"retry: 3000\n\n"]
    write(entry(key))
    for one in (older, newest, others):
        assert next(events(one))[1] == 1
        leave(one)
    assert (watching._watches, live._streams) == ({}, {})


def test_a_wrong_filter_and_a_stranger_are_refused(world: World) -> None:
    assert Visitor(world.dana).open(page(world.acme, "logs/live"), startDate="soon").status_code == 400
    assert Visitor(world.sam).open(page(world.acme, "logs/live")).status_code == 403
    assert Visitor().open(page(world.acme, "logs/live")).status_code == 302
    head = Visitor(world.dana).client.head(page(world.acme, "logs/live"))
    assert (head.status_code, head["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
    assert watching._watches == {}


def test_the_first_page_of_the_list_and_the_overview_follow(world: World, key: Any) -> None:
    newest, _ = write(entry(key), entry(key, id=id_at(ago(minutes=1))))
    dana = Visitor(world.dana)
    address = page(world.acme, "logs/live")
    shown = dana.open(page(world.acme, "logs"), model="gpt-5", limit="1")
    assert f'data-live="{address}?newest={newest}&amp;model=gpt-5&amp;limit=1"' in shown.content.decode()
    older = dana.client.get(f"{page(world.acme, 'logs')}?{shown.context['following']}")
    assert "data-live" not in older.content.decode()
    assert f'data-live="{address}?newest=&amp;days=7&amp;by=' in dana.open(page(world.acme)).content.decode()
