"""Text search of the log: its matches, their order, its bounds, with an index and without."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from apps.logs import partitions, text_search
from apps.logs.access import LogScope
from apps.logs.query import LogFilters
from apps.logs.text_search import TextPage, find_text, has_words, index_closed_days
from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import World, make_key

pytestmark = pytest.mark.django_db


@pytest.fixture
def key(world: World) -> Any:
    return make_key(world.olivia, world.project).key


def said(key: Any, moment: datetime, content: str | None = None, prompt: str = "", **fields: Any) -> UUID:
    """Write a request whose content is kept; return its id."""
    kept = {"retention_level": "retain", "content": content, "messages": [{"role": "user", "content": prompt}]}
    return write(entry(key, id=id_at(moment), **{**kept, **fields}))[0]


def find(world: World, text: str, filters: LogFilters | None = None, **options: Any) -> TextPage:
    scope = LogScope({world.acme.id: ago(days=30)})
    return find_text(scope, filters or LogFilters(), text, **{"after": None, "count": 50, **options})


def ids(page: TextPage) -> list[UUID]:
    return [row["id"] for row in page.rows]


def test_words_of_answers_and_prompts_are_found_newest_first(world: World, key: Any) -> None:
    answer = said(key, ago(minutes=3), "Refunds take\nthree days")
    prompt = said(key, ago(minutes=2), prompt="How long does a refund take?\nThree weeks?")
    other = said(key, ago(minutes=1), "Grüße", "Über \N{GREEK SMALL LETTER OMEGA}")
    assert ids(find(world, "THREE take")) == [prompt, answer]
    assert ids(find(world, '"three days"')) == [answer]
    assert ids(find(world, "three -weeks")) == [answer]
    assert ids(find(world, "refund or refunds")) == [prompt, answer]
    assert ids(find(world, "grüße über")) == [other]
    assert ids(find(world, "thre")) == []
    assert find(world, "three").rows[0]["content"] is None
    assert find(world, "three") == TextPage(find(world, "three").rows, None)


def test_only_kept_content_of_the_scope_and_the_filters_is_found(world: World, key: Any) -> None:
    own = said(key, ago(minutes=3), "falcon")
    said(key, ago(minutes=2), "falcon", retention_level="metadata")
    said(make_key(world.sam, world.elsewhere_project).key, ago(minutes=2), "falcon")
    slow = said(key, ago(minutes=1), "falcon", used_model="claude", used_provider="anthropic")
    assert ids(find(world, "falcon")) == [slow, own]
    assert ids(find(world, "falcon", LogFilters(model="claude"))) == [slow]
    assert ids(find(world, "falcon", LogFilters(end=ago(minutes=2)))) == [own]
    assert ids(find(world, "falcon", LogFilters(start=ago(minutes=2)))) == [slow]
    elsewhere = LogScope({world.acme.id: ago(days=30)}, project_id=world.elsewhere_project.id)
    assert find_text(elsewhere, LogFilters(), "falcon", after=None, count=5).rows == []
    # The first word of a row is its organization: it leads no search to another's rows.
    assert ids(find(world, f"o{world.elsewhere.id.hex} falcon")) == []


def test_pages_follow_each_other(world: World, key: Any) -> None:
    newest, middle, oldest = (said(key, ago(hours=hours), "falcon") for hours in (1, 25, 49))
    first = find(world, "falcon", count=2)
    assert (ids(first), first.next_after) == ([newest, middle], middle)
    second = find(world, "falcon", count=2, after=first.next_after)
    assert (ids(second), second.next_after, second.searched_since) == ([oldest], None, None)


def test_a_search_that_runs_out_of_time_says_how_far_it_came(
    world: World, key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_search, "_FIRST_CHUNK", 2)
    others = [said(key, ago(minutes=minute), "owl") for minute in (1, 2, 3)]
    falcon = said(key, ago(minutes=4), "falcon")
    first = find(world, "falcon", seconds=0)
    assert (first.rows, first.next_after) == ([], others[1])
    assert first.searched_since is not None
    assert abs(first.searched_since - ago(minutes=2)) < timedelta(seconds=5)
    second = find(world, "falcon", seconds=0, after=first.next_after)
    assert (ids(second), second.next_after) == ([falcon], falcon)
    last = find(world, "falcon", seconds=0, after=second.next_after)
    assert (last.rows, last.next_after) == ([], None)


@pytest.mark.parametrize("text", ["", "   ", "-falcon", "!!!", "a\0b", "''"])
def test_a_text_without_words_is_known(text: str) -> None:
    assert not has_words(text)


@pytest.mark.parametrize("text", ["falcon", "a -b", '"unfinished', "x'; DROP TABLE request_log --", "世界"])
def test_any_text_with_words_is_searched(world: World, key: Any, text: str) -> None:
    said(key, ago(minutes=1), "owl")
    assert has_words(text)
    assert find(world, text).rows == []


def test_a_row_with_the_most_words_is_still_searched(world: World, key: Any) -> None:
    """Words that differ, of letters with three bytes, with hyphens: more fit into no text of these lengths."""
    letters = [chr(number) for number in range(0x4E00, 0x9FA5)]
    text = " ".join(f"{one}-{two}" for one, two in zip(letters, reversed(letters), strict=True))
    found = said(key, ago(minutes=1), f"falcon {text}", text)
    assert ids(find(world, "falcon")) == [found]


def test_rows_without_the_words_are_left_out_before_their_words_are_computed(world: World, key: Any) -> None:
    """PostgreSQL says whether a row matches; the faster look at its letters only leaves out rows that do not."""
    contents = [
        *("It's 100% sure, e-mail ANNA.Roe@Example.COM or see https://Example.org/a_b?c=1#D", "100 percent, not sure"),
        *("ΟΔΟΣ Σίσυφος", "ÜBERGRÖSSE Straße ÅNGSTRÖM İstanbul IĞDIR", "\N{KELVIN SIGN}elvin kelvin", "世界 你好"),
        *("snake_case camelCase kebab-case-word v1.2.3 /usr/local/bin 1.5e-3 -42", 'back\\slash "quoted" <tag> &amp;'),
        *("falcon\nowl\tkite", "owl falcon", ""),
    ]
    for content in contents:
        said(key, ago(minutes=1), content, "")
        said(key, ago(minutes=1), "", content)
    texts = [word for content in contents for word in content.split()] + [
        *(
            '"falcon owl"',
            "falcon or kite",
            "owl -falcon",
            "falcon kite",
            "straße übergrösse",
            "100 sure",
            "οδος",
            "ISTANBUL",
        ),
        *("KELVIN", "Kebab-Case", "anna.roe@example.com", "example.org", "1.2.3", "quoted amp", "case", "σ"),
    ]
    for text in filter(has_words, texts):
        found = {one["id"] for one in find(world, text).rows}
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT id FROM request_log WHERE {text_search._MATCH}", [f"o{world.acme.id.hex}", text])
            assert found == {UUID(str(one)) for (one,) in cursor.fetchall()}, text
    assert text_search._patterns_of("falcon -owl 50%", "default") == ["%falcon%", "%50%"]
    assert text_search._patterns_of("falcon or owl", "default") == []


@pytest.fixture
def _no_indexes() -> Iterator[None]:
    """At the end, no partition has an index for text."""
    yield
    with connection.cursor() as cursor:
        for day in partitions.existing():
            cursor.execute(f"DROP INDEX IF EXISTS {partitions.name_of(day)}_text")


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_no_indexes")
def test_days_that_have_ended_get_an_index_which_finds_the_same(
    world: World, key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)
    days = [now - timedelta(days=age) for age in (1, 2)]
    falcons = [said(key, moment, "falcon") for moment in days]
    owls = [said(key, moment - timedelta(seconds=1), "owl", used_model="claude") for moment in days]
    assert ids(find(world, "falcon")) == falcons
    write(entry(key, id=id_at(now - timedelta(days=3))))
    theirs = make_key(world.sam, world.elsewhere_project).key
    said(theirs, now - timedelta(days=4), "falcon")
    days.append(now - timedelta(days=4))
    today = said(key, now - timedelta(milliseconds=1), "falcon owl")
    before = [ids(find(world, text)) for text in ("falcon", "owl", "falcon owl")]
    assert before == [[today, *falcons], [today, *owls], [today]]

    assert index_closed_days(now, -1) == []
    assert index_closed_days(now, 60) == [moment.date() for moment in days]
    assert index_closed_days(now, 60) == []
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexrelid::regclass::text FROM pg_index WHERE indexrelid::regclass::text LIKE '%_text'")
        found = {name for (name,) in cursor.fetchall()}
    assert found == {f"{partitions.name_of(moment.date())}_text" for moment in days}
    # Only the newest request is read; the index has the others.
    monkeypatch.setattr(text_search, "_FIRST_CHUNK", 1)
    assert [ids(find(world, text)) for text in ("falcon", "owl", "falcon owl")] == before
    assert ids(find(world, "owl", LogFilters(model="claude"))) == owls
    assert ids(find(world, "falcon", after=falcons[0])) == [falcons[1]]
    # Without time for the index, the search goes forward all the same.
    page = find(world, "owl", seconds=0, after=today)
    assert (ids(page), page.next_after) == ([], falcons[0])
