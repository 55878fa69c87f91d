"""Suggestions of the log's search box: what they contain, whose they are, and how many."""

from __future__ import annotations

from typing import Any

import pytest

from apps.logs import suggestions
from apps.logs.access import LogScope
from apps.logs.suggestions import Suggestion, find_suggestions
from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import World, make_key

pytestmark = pytest.mark.django_db


@pytest.fixture
def key(world: World) -> Any:
    return make_key(world.olivia, world.project).key


def suggest(world: World, text: str) -> list[tuple[str, str]]:
    scope = LogScope({world.acme.id: ago(days=30)})
    return [(one.kind, one.value) for one in find_suggestions(scope, text)]


def test_values_that_contain_the_text_are_suggested(world: World, key: Any) -> None:
    [identifier] = write(
        entry(key, used_model="falcon-7b", used_provider="groq", source="shop.falcon.example", session_id="run-falcon"),
    )
    write(entry(key, custom_headers={"team": "Falcons", "color": "red"}, used_model="old-falcon"))
    assert suggest(world, "FALCON") == [
        ("Model", "falcon-7b"),
        ("Model", "old-falcon"),
        ("Session", "run-falcon"),
        ("Source", "shop.falcon.example"),
        ("Tag", "team: Falcons"),
    ]
    assert suggest(world, "team: f") == [("Tag", "team: Falcons")]
    assert suggest(world, "groq") == [("Provider", "groq")]
    assert suggest(world, f"gen-{identifier.hex}") == suggest(world, str(identifier)) == [("Request", str(identifier))]
    for nothing in ("", "  ", "a\0b", "eagle"):
        assert suggest(world, nothing) == []


def test_each_suggestion_is_a_filter_of_the_log(world: World, key: Any) -> None:
    write(entry(key, custom_headers={"team": "falcon"}, session_id="falcon"))
    scope = LogScope({world.acme.id: ago(days=30)})
    assert find_suggestions(scope, "falcon") == [
        Suggestion("Session", "falcon", {"sessionId": "falcon"}),
        Suggestion("Tag", "team: falcon", {"customHeaderKey": "team", "customHeaderValue": "falcon"}),
    ]


def test_nothing_of_others_is_suggested_and_no_more_than_a_few_of_a_kind(world: World, key: Any) -> None:
    theirs = make_key(world.sam, world.elsewhere_project).key
    [other] = write(entry(theirs, used_model="falcon", source="falcon", session_id="falcon"))
    assert suggest(world, "falcon") == []
    assert suggest(world, str(other)) == []
    write(*(entry(key, session_id=f"falcon-{number}") for number in range(9)))
    assert len(suggest(world, "falcon")) == suggestions.MAX_OF_KIND


def test_an_old_session_is_found_by_its_whole_name(world: World, key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggestions, "MAX_ROWS", 1)
    write(entry(key, id=id_at(ago(days=2)), session_id="old-run"), entry(key))
    assert suggest(world, "old-ru") == []
    assert suggest(world, "old-run") == [("Session", "old-run")]
