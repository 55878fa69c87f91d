"""The search box of the log in the console: requests by id, suggestions, texts of prompts and answers."""

from __future__ import annotations

from typing import Any

import pytest

from apps.console.pages.logs import text as search_box
from apps.logs import text_search
from apps.organizations.models import Organization
from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import World, make_key
from tests.support.console_client import Visitor, page, words


@pytest.fixture
def key(world: World) -> Any:
    Organization.objects.update(retention_level="retain")
    return make_key(world.olivia, world.project, "crawler").key


def kept(key: Any, content: str, **fields: Any) -> Any:
    return entry(key, retention_level="retain", content=content, **fields)


def shown(answer: Any) -> list[Any]:
    return [row["id"] for row in answer.context["rows"]]


def test_an_id_leads_to_its_request(world: World, key: Any) -> None:
    [identifier] = write(entry(key))
    for text in (str(identifier), f"gen-{identifier.hex}", f" {identifier} "):
        answer = Visitor(world.dana).open(page(world.acme, "logs"), q=text)
        assert (answer.status_code, answer["Location"]) == (302, page(world.acme, f"logs/{identifier}"))


def test_texts_are_found_and_the_filters_hold(world: World, key: Any) -> None:
    falcon, other, _ = write(
        kept(key, "the falcon <script>flies</script>", used_model="gpt-5"),
        kept(key, "a falcon", used_model="claude", id=id_at(ago(minutes=1))),
        kept(key, "an owl", id=id_at(ago(minutes=2))),
    )
    dana = Visitor(world.dana)
    answer = dana.open(page(world.acme, "logs"), q="falcon")
    assert (answer.status_code, shown(answer), answer.context["histogram"]) == (200, [falcon, other], None)
    assert shown(dana.open(page(world.acme, "logs"), q="falcon", model="claude")) == [other]
    text = answer.content.decode()
    assert "<script>flies" not in text
    # Exports and live updates ignore the text, and are not offered.
    assert "Export CSV" not in text
    assert "data-live=" not in text
    assert 'name="q" value="falcon"' in text
    sam = Visitor(world.sam).open(page(world.elsewhere, "logs"), q="falcon")
    assert (shown(sam), sam.context["search"].suggestions) == ([], [])


def test_pages_and_a_search_that_ran_out_of_time_lead_on(
    world: World, key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_search, "_FIRST_CHUNK", 1)
    write(*(kept(key, "owl", id=id_at(ago(minutes=minute))) for minute in (1, 2)))
    [falcon] = write(kept(key, "falcon", id=id_at(ago(minutes=3))))
    dana = Visitor(world.dana)
    first = dana.open(page(world.acme, "logs"), q="owl", limit="1")
    assert len(shown(first)) == 1
    second = dana.open(page(world.acme, "logs") + "?" + first.context["following"])
    assert (len(shown(second)), shown(second) == shown(first)) == (1, False)
    find = text_search.find_text
    monkeypatch.setattr(search_box, "find_text", lambda *some, **others: find(*some, **{**others, "seconds": 0}))
    answer = dana.open(page(world.acme, "logs"), q="falcon")
    assert shown(answer) == []
    assert "No matching requests so far" in words(answer)
    while answer.context["following"] and not shown(answer):
        answer = dana.open(page(world.acme, "logs") + "?" + answer.context["following"])
    assert shown(answer) == [falcon]


def test_the_page_says_what_cannot_be_searched(world: World, key: Any) -> None:
    write(kept(key, "falcon"))
    dana = Visitor(world.dana)
    found = dana.open(page(world.acme, "logs"), q="falcon")
    assert (len(shown(found)), "keeps no prompts and answers" in words(found)) == (1, False)
    Organization.objects.filter(pk=world.acme.pk).update(retention_level="metadata")
    without = dana.open(page(world.acme, "logs"), q="falcon")
    assert (shown(without), "keeps no prompts and answers" in words(without)) == ([], True)
    Organization.objects.filter(pk=world.acme.pk).update(retention_level="retain")
    assert "Enter a word to search" in words(dana.open(page(world.acme, "logs"), q="-falcon"))
    for hostile in ("a\0b", "%_'\"\\", "(" * 300, "\u202e"):
        assert dana.open(page(world.acme, "logs"), q=hostile).status_code == 200


def test_suggestions_are_a_part_of_the_page_and_lead_to_filters(world: World, key: Any) -> None:
    [identifier] = write(entry(key, used_model="falcon", session_id="<b>falcon"))
    answer = Visitor(world.dana).open(page(world.acme, "logs/suggestions"), q="falcon")
    text = answer.content.decode()
    assert "<html" not in text
    assert f'href="{page(world.acme, "logs")}?model=falcon"' in text
    assert f'href="{page(world.acme, "logs")}?sessionId=%3Cb%3Efalcon"' in text
    assert "<b>" not in text
    found = Visitor(world.dana).open(page(world.acme, "logs/suggestions"), q=str(identifier)).content.decode()
    assert f'href="{page(world.acme, f"logs/{identifier}")}"' in found
    assert Visitor(world.dana).open(page(world.acme, "logs/suggestions")).content.strip() == b""
