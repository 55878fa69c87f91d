"""Request logs in the console: the list, single requests and exports, who sees them, and that they are plain text."""

from __future__ import annotations

import ast
import json
import shlex
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pytest
from django.conf import settings

from apps.console.pages import logs as pages_of_logs
from apps.console.pages.logs import FIRST_COLUMNS
from apps.console.pages.logs.period import ZONE_COOKIE
from apps.console.snippets import MAX_BODY
from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import Choice, Reply
from apps.gateway.settlement.record import keep_answer
from apps.organizations.models import Organization, RetentionLevel
from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import World, make_key
from tests.support.console_client import Visitor, page, words

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def key(world: World) -> Any:
    return make_key(world.olivia, world.project, "crawler").key


def test_the_list_has_what_the_filters_leave(world: World, key: Any) -> None:
    write(
        entry(key, used_model="gpt-5", source="web", custom_headers={"team": "red"}),
        entry(
            key,
            id=id_at(ago(minutes=1)),
            used_model="claude-haiku",
            used_provider="anthropic",
            has_error=True,
            unified_finish_reason="upstream_error",
            status_code=502,
        ),
    )
    visitor = Visitor(world.dana)

    whole = words(visitor.open(page(world.acme, "logs")))
    assert "502 Provider failed claude-haiku anthropic" in whole
    assert "Completed gpt-5" in whole
    for query, models in [
        ({"model": "gpt-5"}, {"gpt-5"}),
        ({"unifiedFinishReason": "upstream_error"}, {"claude-haiku"}),
        ({"provider": "anthropic", "source": ""}, {"claude-haiku"}),
        ({"customHeaderKey": "team", "customHeaderValue": "red"}, {"gpt-5"}),
        ({"apiKeyId": str(key.id), "limit": "1"}, {"gpt-5"}),
        ({"endDate": "2020-01-01"}, set()),
    ]:
        rows = visitor.open(page(world.acme, "logs"), **query).context["rows"]
        assert {row["used_model"] for row in rows} == models, query


def test_pages_follow_each_other_with_the_filters_kept(world: World, key: Any) -> None:
    write(*(entry(key, id=id_at(ago(minutes=age)), used_model="gpt-5") for age in range(3)))
    visitor = Visitor(world.dana)

    first = visitor.open(page(world.acme, "logs"), model="gpt-5", limit="2")
    second = visitor.client.get(f"{page(world.acme, 'logs')}?{first.context['following']}")

    assert "model=gpt-5" in first.context["following"]
    assert [len(one.context["rows"]) for one in (first, second)] == [2, 1]
    seen = [row["id"] for one in (first, second) for row in one.context["rows"]]
    assert len(set(seen)) == 3
    assert second.context["following"] is None


def test_a_request_is_found_by_the_id_of_its_answer(world: World, key: Any) -> None:
    theirs = make_key(world.sam, world.elsewhere_project).key
    [mine, others] = write(entry(key), entry(theirs))
    dana = Visitor(world.dana)
    for wanted in (f"gen-{mine}", f"gen-{mine.hex}", f" {mine} "):
        assert dana.open(page(world.acme, "logs"), id=wanted)["Location"] == page(world.acme, f"logs/{mine}")
    for wanted in (f"gen-{others}", "gen-", "nonsense"):
        answer = dana.open(page(world.acme, "logs"), id=wanted)
        assert answer.status_code == 400
        assert answer.context["form"].errors == {
            "id": "No request in the log has this id; it may be past its retention"
        }
        assert answer.context["rows"] == []


def test_a_time_that_is_still_to_come_is_told(world: World, key: Any) -> None:
    write(entry(key))
    said = words(Visitor(world.dana).open(page(world.acme, "logs"), startDate="2999-01-01"))
    assert "The selected dates are in the future" in said


def test_a_key_that_the_list_to_choose_from_leaves_out_stays_chosen(
    world: World, key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages_of_logs, "MAX_KEYS", 1)
    newer = make_key(world.olivia, world.project, "newer").key
    answer = Visitor(world.dana).open(page(world.acme, "logs"), apiKeyId=str(key.id))
    assert [one for one, _ in answer.context["keys"]] == ["", newer.id, key.id]
    assert f'value="{key.id}" selected' in answer.content.decode()


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Niue"])
@pytest.mark.parametrize("name", ["startDate", "endDate"])
@pytest.mark.parametrize("moment", ["0001-01-01", "0001-01-01T00:00:00Z", "9999-12-31", "9999-12-31T23:59:59Z"])
def test_a_time_at_an_end_of_the_calendar_is_a_time(world: World, key: Any, zone: str, name: str, moment: str) -> None:
    write(entry(key))
    visitor = Visitor(world.dana)
    visitor.client.cookies[ZONE_COOKIE] = zone
    answer = visitor.open(page(world.acme, "logs"), **{name: moment})
    is_around = (name, moment[:4]) in {("startDate", "0001"), ("endDate", "9999")}
    assert (answer.status_code, len(answer.context["rows"])) == (200, int(is_around))
    assert answer.context["form"].values[name][:4] == moment[:4]


@pytest.mark.parametrize("place", ["logs", "audit", "guardrails/violations"])
def test_a_time_that_ends_before_it_begins_is_told_beside_its_field(world: World, place: str) -> None:
    Organization.objects.update(plan="enterprise")
    answer = Visitor(world.olivia).open(page(world.acme, place), startDate="2026-02-02", endDate="2026-02-01")
    errors = answer.context["form"].errors
    assert (answer.status_code, errors) == (400, {"startDate": "Must not be after the end"})


@pytest.mark.parametrize(("name", "value"), [("startDate", "soon"), ("apiKeyId", "elsewhere"), ("cursor", "x")])
def test_a_filter_that_makes_no_sense_is_told(world: World, name: str, value: str) -> None:
    theirs = str(make_key(world.sam, world.elsewhere_project).key.id)
    answer = Visitor(world.dana).open(page(world.acme, "logs"), **{name: theirs if value == "elsewhere" else value})
    assert answer.status_code == 400
    assert answer.context["rows"] == []
    form = answer.context["form"]
    said = form.errors.get(name) or form.problem
    assert said
    assert said in words(answer)


def test_one_request_is_shown_whole_and_nothing_in_it_is_markup(world: World, key: Any) -> None:
    one = entry(
        key,
        requested_model=HOSTILE,
        used_model=HOSTILE,
        messages=[{"role": HOSTILE, "content": [{"type": "text", "text": HOSTILE}, {"type": HOSTILE}]}],
        content=HOSTILE,
        custom_headers={HOSTILE: HOSTILE},
        source=HOSTILE,
        retention_level=RetentionLevel.RETAIN,
        routing_metadata={
            "selectedProvider": "openai",
            "selectionReason": "weighted-score",
            "providerScores": [{"providerId": "openai", "score": 0.91, "price": 1.25, "uptime": 99.5}],
            "routing": [
                {"provider": "azure", "model": "m", "status_code": 503, "error_type": "overloaded", "succeeded": False},
                {"provider": "openai", "model": "m", "status_code": 200, "error_type": "none", "succeeded": True},
            ],
        },
    )
    write(one)
    visitor = Visitor(world.dana)

    shown = visitor.open(page(world.acme, f"logs/{one.id}"))
    assert shown.status_code == 200
    assert HOSTILE not in shown.content.decode()
    assert HOSTILE not in visitor.open(page(world.acme, "logs")).content.decode()
    text = words(shown)
    reason = "Fallback: azure failed, HTTP 503, overloaded"
    assert f"azure m failed, HTTP 503, overloaded {reason} openai m answered, HTTP 200" in text
    assert "First provider: openai (the best score)" in text
    assert "answer <script>alert(1)</script>" in text
    assert "crawler" in text


def test_what_is_not_kept_is_said_to_be_so(world: World, key: Any) -> None:
    one = entry(key, used_model="gpt-5")
    write(one)
    text = words(Visitor(world.dana).open(page(world.acme, f"logs/{one.id}")))
    assert "Prompts and answers were not stored for this request." in text
    assert "Attempts were not stored." in text


def test_the_export_is_the_apis_with_the_filters_of_the_page(world: World, key: Any) -> None:
    write(entry(key, used_model="gpt-5"), entry(key, used_model="other"))
    answer = Visitor(world.dana).open(page(world.acme, "logs/export"), format="jsonl", model="gpt-5")
    lines = b"".join(answer.streaming_content).decode().splitlines()
    assert [json.loads(line)["usedModel"] for line in lines] == ["gpt-5"]
    assert answer["Content-Disposition"] == 'attachment; filename="logs.jsonl"'


@pytest.mark.parametrize("path", ["logs", "logs/export", "logs/{}"])
def test_strangers_see_nothing(world: World, key: Any, path: str) -> None:
    one = entry(key)
    write(one)
    answer = Visitor(world.sam).open(page(world.acme, path.format(one.id)))
    assert answer.status_code == 403
    # Nor is another organization's request found under one's own.
    assert Visitor(world.sam).open(page(world.elsewhere, f"logs/{one.id}")).status_code == 404
    nobody = Visitor().open(page(world.acme, "logs"))
    assert nobody["Location"] == f"/app/sign-in?next={quote(page(world.acme, 'logs'), safe='')}"


def test_images_of_an_answer_are_shown_to_its_organization_alone(world: World, key: Any) -> None:
    one, scripts = entry(key, retention_level=RetentionLevel.RETAIN), entry(key)
    images = [
        f"data:{kind};base64,{b64encode(data).decode()}"
        for kind, data in [("image/png", b"PNG"), ("text/html", b"<b>")]
    ]
    for record, urls in ((one, images), (scripts, images[1:])):
        keep_answer(record, Chat(model="m", messages=[]), Reply(choices=[Choice(images=urls)]))
    write(one, scripts)
    dana = Visitor(world.dana)

    address = page(world.acme, f"logs/{one.id}/media/0")
    assert f'src="{address}"' in dana.open(page(world.acme, f"logs/{one.id}")).content.decode()
    shown = dana.open(address)
    assert (shown.content, shown["Content-Type"], shown["Content-Disposition"]) == (b"PNG", "image/png", "inline")
    hostile = dana.open(page(world.acme, f"logs/{scripts.id}/media/0"))
    assert hostile["Content-Type"] == "application/octet-stream"
    assert hostile["Content-Disposition"] == 'attachment; filename="answer-0"'
    assert dana.open(page(world.acme, f"logs/{one.id}/media/2")).status_code == 404
    assert dana.open(page(world.acme, "logs/nonsense/media/0")).status_code == 404
    assert Visitor(world.sam).open(address).status_code in {403, 404}


def test_a_request_leads_to_its_neighbors_and_back_within_the_filter(world: World, key: Any) -> None:
    names = ["gpt-5", "other", "gpt-5", "gpt-5"]
    newest, _, middle, oldest = write(
        *(entry(key, id=id_at(ago(minutes=age)), used_model=name) for age, name in enumerate(names))
    )
    dana, query = Visitor(world.dana), "model=gpt-5"
    shown = dana.open(page(world.acme, f"logs/{middle}"), model="gpt-5")
    assert (shown.context["newer"], shown.context["older"]) == (newest, oldest)
    text = shown.content.decode()
    for target in (f"logs/{newest}", f"logs/{oldest}", "logs"):
        assert f'href="{page(world.acme, target)}?{query}"' in text
    ends = [dana.open(page(world.acme, f"logs/{one}"), model="gpt-5").context for one in (newest, oldest)]
    assert [(end["newer"], end["older"]) for end in ends] == [(None, middle), (middle, None)]
    wrong = dana.open(page(world.acme, f"logs/{middle}"), apiKeyId="nonsense")
    assert (wrong.status_code, wrong.context["newer"], wrong.context["older"]) == (200, None, None)
    assert (
        f'href="{page(world.acme, f"logs/{middle}")}?{query}"'
        in dana.open(page(world.acme, "logs"), model="gpt-5").content.decode()
    )


def test_the_list_has_key_project_answer_and_first_token(world: World, key: Any) -> None:
    calls = [{"id": "c", "name": "find", "arguments": "{}"}, {"omitted": 1}]
    write(
        entry(key, content="\nfirst line\nsecond", time_to_first_token=1200, duration=3400, retention_level="retain"),
        entry(key, id=id_at(ago(minutes=1)), tool_calls=calls),
        entry(key, id=id_at(ago(minutes=2)), media=[{"kind": "image"}]),
        entry(key, id=id_at(ago(minutes=3)), content="x" * 101),
    )
    answer = Visitor(world.dana).open(page(world.acme, "logs"))
    assert [row["answer"] for row in answer.context["rows"]] == ["first line", "calls find", "image", "x" * 100 + "…"]
    assert {(row["key"], row["project"]) for row in answer.context["rows"]} == {("crawler", world.project.name)}
    assert "3.40 first 1.20" in words(answer)


def test_a_range_has_the_requests_of_its_last_time(world: World, key: Any) -> None:
    ages = {"now": 1, "hour": 30, "day": 600, "week": 5_000, "older": 15_000}
    world.acme.plan = "enterprise"
    world.acme.save()
    write(*(entry(key, id=id_at(ago(minutes=age)), used_model=name) for name, age in ages.items()))
    dana, names = Visitor(world.dana), list(ages)
    for wanted, count in (("15m", 1), ("1h", 2), ("24h", 3), ("7d", 4), ("", 5), ("nonsense", 5)):
        answer = dana.open(page(world.acme, "logs"), range=wanted)
        assert [row["used_model"] for row in answer.context["rows"]] == names[:count], wanted
        assert answer.context["range"] == (wanted if count < 5 else "")
    both = dana.open(page(world.acme, "logs"), range="15m", endDate=ago(minutes=20).isoformat())
    assert [row["used_model"] for row in both.context["rows"]] == names[1:]
    exported = dana.open(page(world.acme, "logs/export"), format="jsonl", range="1h")
    lines = b"".join(exported.streaming_content).decode().splitlines()
    assert [json.loads(line)["usedModel"] for line in lines] == names[:2]


def test_moments_are_in_the_readers_time_zone(world: World, key: Any) -> None:
    Organization.objects.update(plan="enterprise")
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=2)
    [one] = write(entry(key, id=id_at(noon)))
    dana = Visitor(world.dana)
    dana.client.cookies[ZONE_COOKIE] = "Asia/Kolkata"
    local = noon.astimezone(ZoneInfo("Asia/Kolkata"))
    minute = f"{local:%Y-%m-%dT%H:%M}"
    for query, found in (
        ({"startDate": minute, "endDate": minute}, [one]),
        ({"startDate": f"{minute}:01"}, []),
        ({"endDate": f"{local - timedelta(minutes=1):%Y-%m-%dT%H:%M}"}, []),
        ({"startDate": f"{local:%Y-%m-%d}", "endDate": f"{local:%Y-%m-%d}"}, [one]),
        # The zone of the form that was sent takes precedence: the link means the same everywhere.
        ({"startDate": minute, "endDate": minute, "tz": "UTC"}, []),
        ({"startDate": minute, "endDate": minute, "tz": "No/Where"}, [one]),
        ({"startDate": noon.isoformat(), "endDate": noon.isoformat()}, [one]),
    ):
        answer = dana.open(page(world.acme, "logs"), **query)
        assert [row["id"] for row in answer.context["rows"]] == found, query
    text = answer.content.decode()
    assert "From (Asia/Kolkata)" in text
    assert f'name="startDate" value="{minute}:00"' in text
    for wrong in ("../etc/passwd", "America", "x" * 100, "\x00"):
        dana.client.cookies[ZONE_COOKIE] = wrong
        assert "From (UTC)" in dana.open(page(world.acme, "logs")).content.decode()


def test_a_bar_of_the_histogram_leads_to_its_requests(world: World, key: Any) -> None:
    recent, earlier = write(
        entry(key, id=id_at(ago(minutes=1))), entry(key, id=id_at(ago(days=2)), has_error=True, used_model="other")
    )
    dana = Visitor(world.dana)
    answer = dana.open(page(world.acme, "logs"), limit="10")
    shown = answer.context["histogram"]
    assert (shown["requests"], shown["errors"], shown["step"], shown["is_default"]) == (2, 1, "3 h", True)
    drawn = [one for one in shown["bars"] if one["height"]]
    assert [(one["height"], one["failed"]) for one in drawn] == [(40, 40), (40, 0)]
    assert ": 1 request, 1 failed" in drawn[0]["words"]
    for bar, log_id in zip(drawn, (earlier, recent), strict=True):
        zoomed = dana.client.get(f"{page(world.acme, 'logs')}?{bar['link']}")
        assert [row["id"] for row in zoomed.context["rows"]] == [log_id]
        assert "limit=10" in bar["link"]
    assert dana.open(page(world.acme, "logs"), model="other").context["histogram"]["requests"] == 1
    assert "2 requests, 1 failed in the last 7 days" in words(answer)


def test_columns_stay_as_the_reader_chose_them(world: World, key: Any) -> None:
    write(entry(key, custom_headers={"team": "red"}, source="web", used_model="gpt-5"))
    dana = Visitor(world.dana)
    first = dana.open(page(world.acme, "logs"))
    assert first.context["columns"] == list(FIRST_COLUMNS)
    chosen = dana.client.get(f"{page(world.acme, 'logs')}?model=gpt-5&column=&column=tags&column=cost&column=x")
    assert (chosen.status_code, chosen["Location"]) == (302, "?model=gpt-5")
    again = dana.open(page(world.acme, "logs"))
    assert again.context["columns"] == ["cost", "tags"]
    assert "team: red" in words(again)
    assert 'data-label="Answer"' not in again.content.decode()
    dana.client.get(f"{page(world.acme, 'logs')}?column=")
    assert dana.open(page(world.acme, "logs")).context["columns"] == list(FIRST_COLUMNS)


def test_costs_are_short_with_the_exact_amount_as_their_title(world: World, key: Any) -> None:
    write(entry(key, cost=Decimal("0.000853612345")))
    text = Visitor(world.dana).open(page(world.acme, "logs")).content.decode()
    mark = '<data value="0.0008536" data-number="USD">$0.0008536</data>'
    assert f'<span title="$0.000853612345">{mark}</span>' in text


CHAT_REQUEST = {"messages": [{"role": "user", "content": "it's"}], "tools": [{"type": "function", "strict": True}]}


def test_a_request_is_offered_as_code_in_its_own_format(world: World, key: Any) -> None:
    turns = [{"role": "system", "content": "Be kind"}, {"role": "user", "content": "hi"}]
    form = {"type": "json_object"}
    chat = entry(key, **CHAT_REQUEST, requested_model="m", temperature=0.5, max_tokens=9, response_format=form)
    claude = entry(key, route="messages", requested_model="m", messages=turns)
    reply = entry(key, route="responses", requested_model="m", messages=turns, max_tokens=7)
    others = [entry(key, route="embeddings", messages="x"), entry(key), entry(key, messages=["x" * MAX_BODY])]
    write(chat, claude, reply, *others)
    dana = Visitor(world.dana)
    bodies = []
    for one in (chat, claude, reply):
        curl, python, typescript = dana.open(page(world.acme, f"logs/{one.id}")).context["snippets"]
        assert [part.language for part in (curl, python, typescript)] == ["curl", "Python", "TypeScript"]
        url, *_, data = shlex.split(curl.text.replace("\\\n", ""))[1:]
        bodies.append((url.rpartition("/v1")[2], json.loads(data)))
        assert ast.literal_eval(python.text.partition("json=")[2].partition(",\n    timeout")[0]) == bodies[-1][1]
    assert bodies == [
        (
            "/chat/completions",
            {"model": "m", **CHAT_REQUEST, "max_tokens": 9, "temperature": 0.5, "response_format": form},
        ),
        ("/messages", {"model": "m", "system": "Be kind", "messages": turns[1:], "max_tokens": 1024}),
        ("/responses", {"model": "m", "input": turns, "max_output_tokens": 7}),
    ]
    for one in others:
        assert dana.open(page(world.acme, f"logs/{one.id}")).context["snippets"] == []


def test_two_requests_are_compared(world: World, key: Any) -> None:
    texts = [("Be kind", "yes", "0.01"), ("Be brief", "no", "0.03")]
    first, second = write(
        *(
            entry(
                key,
                id=id_at(ago(minutes=2 - place)),
                messages=[{"role": "system", "content": text}, {"role": "user", "content": HOSTILE}],
                content=answer,
                cost=Decimal(cost),
                retention_level=RetentionLevel.RETAIN,
            )
            for place, (text, answer, cost) in enumerate(texts)
        )
    )
    dana, path = Visitor(world.dana), page(world.acme, f"logs/{first}")
    for wanted in (str(second), f"gen-{second.hex}"):
        shown = dana.open(path, **{"with": wanted})
        text = words(shown)
        assert "Cost $0.01 $0.03 +$0.02 ( +200% )" in text
        assert "Equal messages in both, not shown: 1 ." in text
        assert "system: Only in the first: Be kind Only in the second: Be brief" in text
        assert "answer: Only in the first: yes Only in the second: no" in text
        assert HOSTILE not in shown.content.decode()
        assert f'href="{page(world.acme, f"logs/{second}")}?with={first}"' in shown.content.decode()
    one = dana.open(page(world.acme, f"logs/{second}"), model="gpt-5").content.decode()
    assert f'href="?model=gpt-5&amp;with={first}"' in one


@pytest.mark.parametrize("wanted", ["nonsense", "theirs"])
def test_a_request_is_compared_with_nothing_that_the_log_does_not_show(world: World, key: Any, wanted: str) -> None:
    [mine] = write(entry(key, used_model="gpt-5"))
    [theirs] = write(entry(make_key(world.sam, world.elsewhere_project).key, used_model="secret-model"))
    other = str(theirs) if wanted == "theirs" else wanted
    answer = Visitor(world.dana).open(page(world.acme, f"logs/{mine}"), **{"with": other})
    assert answer.status_code == 400
    text = words(answer)
    assert "No request in the log has this id" in text
    assert "secret-model" not in text


def test_a_request_opens_in_the_playground_where_it_can_be_repeated(world: World, key: Any) -> None:
    chat, other = write(entry(key, **CHAT_REQUEST, requested_model="a/b&c"), entry(key))
    dana, playground = Visitor(world.dana), page(world.acme, "playground")
    text = dana.open(page(world.acme, f"logs/{chat}")).content.decode()
    assert f'href="{playground}?log={chat}"' in text
    assert f'href="{playground}?log={chat}&amp;other=a%2Fb%26c"' in text
    assert f">{settings.PUBLIC_URL}{page(world.acme, f'logs/{chat}')}</span>" in text
    assert playground + "?log" not in dana.open(page(world.acme, f"logs/{other}")).content.decode()
