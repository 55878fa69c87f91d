"""The request log, searched and shown (sections 4.4 and 2.12)."""

# length: one section of the specification, clause by clause; its scopes, filters and pages share their set-up.

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.http import HttpResponse
from pytest_django import DjangoAssertNumQueries

from apps.kernel.ids import new_id, time_of
from apps.keys.actions import CreatedKey
from apps.keys.models import ApiKey, ProviderKey
from apps.logs.models import RequestLog
from apps.organizations.models import Organization, Plan, Project, Role
from tests.logs.entries import FULL, ago, entry, id_at, write
from tests.support.cast import Caller, World, join, make_key, make_organization, signed_in

# Specification 2.12, every name of it.
SPECIFIED = {
    *("id", "requestId", "organizationId", "projectId", "apiKeyId", "createdAt", "duration"),
    *("requestedModel", "requestedProvider", "usedModel", "usedProvider"),
    *("messages", "content", "reasoningContent", "responseSize"),
    *("promptTokens", "completionTokens", "totalTokens", "reasoningTokens", "imageInputTokens", "imageOutputTokens"),
    *("cost", "inputCost", "outputCost", "requestCost", "imageInputCost", "imageOutputCost", "estimatedCost"),
    *("temperature", "maxTokens", "topP", "frequencyPenalty", "presencePenalty", "reasoningEffort"),
    *("reasoningMaxTokens", "responseFormat", "tools", "toolChoice", "toolResults"),
    *("finishReason", "unifiedFinishReason", "hasError", "canceled", "errorDetails", "streamed", "cached"),
    *("customHeaders", "mode", "usedMode", "source", "routingMetadata"),
}
BEYOND = {
    *("providerKeyId", "route", "timeToFirstToken", "underlyingModel", "statusCode", "unpriced", "prices"),
    *("cachedTokens", "cacheWriteTokens", "cachedInputCost", "cacheWriteCost", "webSearchCost", "dataStorageCost"),
    *("discountSavings", "refusal", "toolCalls", "toolCallCounts", "choices", "citations", "media"),
    *("sessionId", "userAgent"),
}

TEXTS = {
    *("id", "requestId", "organizationId", "projectId", "apiKeyId", "providerKeyId", "createdAt", "route"),
    *("requestedModel", "requestedProvider", "usedModel", "usedProvider", "underlyingModel"),
    *("content", "reasoningContent", "refusal", "reasoningEffort", "finishReason", "unifiedFinishReason"),
    *("promptTokens", "completionTokens", "totalTokens", "reasoningTokens", "cachedTokens", "cacheWriteTokens"),
    *("imageInputTokens", "imageOutputTokens", "mode", "usedMode", "source", "sessionId", "userAgent"),
    "toolChoice",  # Here it is the word `auto`.
}
NUMBERS = {
    *("duration", "timeToFirstToken", "responseSize", "statusCode"),
    *("cost", "inputCost", "outputCost", "cachedInputCost", "cacheWriteCost", "requestCost", "webSearchCost"),
    *("imageInputCost", "imageOutputCost", "dataStorageCost", "discountSavings"),
    *("temperature", "maxTokens", "topP", "frequencyPenalty", "presencePenalty", "reasoningMaxTokens"),
}
BOOLEANS = {"estimatedCost", "unpriced", "hasError", "canceled", "streamed", "cached"}
ANY = (SPECIFIED | BEYOND) - TEXTS - NUMBERS - BOOLEANS


@pytest.fixture
def created(world: World) -> CreatedKey:
    """A key of Acme's default project."""
    return make_key(world.olivia, world.project)


@pytest.fixture
def key(created: CreatedKey) -> ApiKey:
    """The same, as a row."""
    return created.key


@pytest.fixture
def caller(created: CreatedKey) -> Caller:
    """A caller with that key."""
    return Caller(created.token)


def body(response: HttpResponse) -> Any:
    """Return a successful answer's JSON; decimals stay decimals."""
    assert response.status_code == 200, response.content
    assert response["Content-Type"] == "application/json"
    return json.loads(response.content, parse_float=Decimal)


def ids(response: HttpResponse) -> list[UUID]:
    """Return the ids of a page."""
    return [UUID(log["id"]) for log in body(response)["logs"]]


def refusal(response: HttpResponse, status: int) -> str:
    """Return the message of a refusal in the envelope of the logs."""
    answer = json.loads(response.content)
    assert (response.status_code, answer) == (status, {"error": True, "status": status, "message": answer["message"]})
    return str(answer["message"])


def test_a_log_entry_has_every_field_of_2_12(caller: Caller, key: ApiKey) -> None:
    [identifier] = write(
        entry(
            key,
            duration=321,
            requested_provider=None,
            messages=[{"role": "user", "content": "hi", "n": 1.10}],
            content="hello",
            response_size=99,
            prompt_tokens=1003,
            completion_tokens=207,
            total_tokens=1210,
            cost=Decimal("0.000000000001"),
            input_cost=Decimal("2.5"),
            output_cost=Decimal(0),
            estimated_cost=False,
            temperature=0.5,
            max_tokens=64,
            tools=["search"],
            custom_headers={"team": "blue"},
            streamed=True,
        )
    )
    [log] = body(caller.get("/logs"))["logs"]
    assert set(log) == SPECIFIED | BEYOND
    assert {name: value for name, value in log.items() if value is not None} == {
        "id": str(identifier),
        "requestId": "req-1",
        "organizationId": str(key.project.organization_id),
        "projectId": str(key.project_id),
        "apiKeyId": str(key.id),
        "createdAt": time_of(identifier).isoformat().replace("+00:00", "Z"),
        "route": "chat_completions",
        "duration": 321,
        "requestedModel": "gpt-5",
        "usedModel": "gpt-5",
        "usedProvider": "openai",
        "underlyingModel": "gpt-5-2026-08-07",
        "messages": [{"role": "user", "content": "hi", "n": Decimal("1.1")}],
        "content": "hello",
        "responseSize": 99,
        "promptTokens": "1003",
        "completionTokens": "207",
        "totalTokens": "1210",
        "cost": Decimal("0.000000000001"),
        "inputCost": Decimal("2.5"),
        "outputCost": 0,
        "estimatedCost": False,
        "unpriced": False,
        "temperature": Decimal("0.5"),
        "maxTokens": 64,
        "tools": ["search"],
        "unifiedFinishReason": "completed",
        "statusCode": 200,
        "hasError": False,
        "customHeaders": {"team": "blue"},
        "streamed": True,
        "mode": "credits",
        "usedMode": "credits",
    }


def test_no_field_has_another_type_than_2_12_says(caller: Caller, key: ApiKey) -> None:
    """In the log and in its file; a boolean is none that equals 0 or 1."""
    write(entry(key, **FULL))
    [log] = body(caller.get("/logs"))["logs"]
    line = json.loads(caller.get("/logs/export", format="jsonl").getvalue(), parse_float=Decimal)
    for shown in (log, line):
        types = {name: type(value) for name, value in shown.items()}
        assert {name for name, kind in types.items() if kind is str} == TEXTS
        assert {name for name, kind in types.items() if kind in (int, Decimal)} == NUMBERS
        assert {name for name, kind in types.items() if kind is bool} == BOOLEANS
        assert types.keys() - TEXTS - NUMBERS - BOOLEANS == ANY
    header, row = csv.reader(io.StringIO(caller.get("/logs/export").getvalue().decode(), newline=""))
    cells = dict(zip(header, row, strict=True))
    assert {name: cells[name] for name in BOOLEANS} == {name: str(log[name]).lower() for name in BOOLEANS}


@pytest.mark.parametrize("estimated", [True, False, None])
def test_whether_the_cost_is_an_estimate_is_no_number(caller: Caller, key: ApiKey, estimated: bool | None) -> None:
    write(entry(key, estimated_cost=estimated))
    assert f'"estimatedCost":{json.dumps(estimated)},'.encode() in caller.get("/logs").content


def test_a_cost_is_a_number_with_all_its_digits(caller: Caller, key: ApiKey) -> None:
    [identifier] = write(entry(key, cost=Decimal("123456789012.000000000001"), input_cost=Decimal("1E-12")))
    text = caller.get(f"/logs/{identifier}").content
    assert b'"cost":123456789012.000000000001,' in text
    assert b'"inputCost":0.000000000001,' in text


def test_one_log_by_its_id(caller: Caller, key: ApiKey) -> None:
    [identifier, _] = write(entry(key, content="this"), entry(key, content="that"))
    answer = body(caller.get(f"/logs/{identifier}"))
    assert set(answer) == {"log"}
    assert (answer["log"]["id"], answer["log"]["content"]) == (str(identifier), "this")


@pytest.mark.parametrize(
    "identifier",
    [
        "nonsense",
        "0190c1c5-0000-7000-8000-000000000000",
        "11111111-1111-4111-8111-111111111111",
        # Made beyond the year 9999.
        "ffffffff-ffff-7fff-bfff-ffffffffffff",
    ],
)
def test_an_unknown_log_is_404(caller: Caller, identifier: str) -> None:
    assert refusal(caller.get(f"/logs/{identifier}"), 404) == "Log not found"


class TestAuthentication:
    """Section 5.1: an API key, in either header; the logs take a session too."""

    def test_x_api_key(self, created: CreatedKey, key: ApiKey) -> None:
        written = write(entry(key))
        response = Caller().send("GET", "/logs", b"", **{"x-api-key": created.token})
        assert ids(response) == written

    @pytest.mark.parametrize("path", ["/logs", "/logs/unique-models", f"/logs/{new_id()}"])
    @pytest.mark.parametrize("token", [None, "gw_dev_nobody", "nobody"])
    def test_without_a_key_that_works_401(self, world: World, path: str, token: str | None) -> None:
        assert refusal(Caller(token).get(path), 401) == "Missing or invalid API key"

    def test_an_inactive_key_401(self, caller: Caller, key: ApiKey) -> None:
        ApiKey.objects.filter(id=key.id).update(status=ApiKey.Status.INACTIVE)
        refusal(caller.get("/logs"), 401)


class TestScope:
    """An API key sees its own project; a session sees every organization of the user."""

    @pytest.fixture
    def second_project(self, world: World) -> Project:
        """Another project of Acme's."""
        return Project.objects.create(organization=world.acme, name="Second")

    @pytest.fixture
    def rows(self, world: World, key: ApiKey, second_project: Project) -> dict[str, UUID]:
        """A row in each place, oldest first."""
        places = {
            "own": key,
            "same project": make_key(world.dana, world.project).key,
            "second project": make_key(world.olivia, second_project).key,
            "elsewhere": make_key(world.sam, world.elsewhere_project).key,
        }
        return dict(zip(places, write(*(entry(one) for one in places.values())), strict=True))

    def test_a_key_sees_its_project(self, caller: Caller, rows: dict[str, UUID]) -> None:
        assert ids(caller.get("/logs")) == [rows["same project"], rows["own"]]

    def test_a_session_sees_every_organization_of_the_user(self, world: World, rows: dict[str, UUID]) -> None:
        newest_first = [rows["second project"], rows["same project"], rows["own"]]
        assert ids(signed_in(world.dana).get("/logs")) == newest_first
        assert ids(signed_in(world.sam).get("/logs")) == [rows["elsewhere"]]
        join(world.acme, world.sam, Role.DEVELOPER)
        assert ids(signed_in(world.sam).get("/logs")) == [rows["elsewhere"], *newest_first]
        oldest_first = [*newest_first[::-1], rows["elsewhere"]]
        assert ids(signed_in(world.sam).get("/logs", orderBy="createdAt_asc")) == oldest_first

    def test_a_user_of_no_organization_sees_nothing(self, world: World, rows: dict[str, UUID]) -> None:
        world.sam.memberships.all().delete()
        answer = body(signed_in(world.sam).get("/logs"))
        assert answer == {"logs": [], "pagination": {"nextCursor": None, "hasMore": False, "limit": 50}}
        assert body(signed_in(world.sam).get("/logs/unique-models")) == {"models": [], "providers": []}

    def test_a_deleted_organization_is_out_of_scope(self, world: World, rows: dict[str, UUID]) -> None:
        Organization.objects.filter(id=world.acme.id).update(status=Organization.Status.DELETED)
        assert ids(signed_in(world.olivia).get("/logs")) == []
        refusal(signed_in(world.olivia).get("/logs", orgId=str(world.acme.id)), 403)
        refusal(signed_in(world.olivia).get(f"/logs/{rows['own']}"), 404)

    def test_a_log_outside_is_404(self, world: World, caller: Caller, rows: dict[str, UUID]) -> None:
        for place in ("second project", "elsewhere"):
            assert refusal(caller.get(f"/logs/{rows[place]}"), 404) == "Log not found"
        refusal(signed_in(world.olivia).get(f"/logs/{rows['elsewhere']}"), 404)
        assert body(signed_in(world.olivia).get(f"/logs/{rows['second project']}"))["log"]["id"] == str(
            rows["second project"]
        )

    def test_ids_inside_narrow(
        self, world: World, caller: Caller, key: ApiKey, rows: dict[str, UUID], second_project: Project
    ) -> None:
        own = {"orgId": str(world.acme.id), "projectId": str(world.project.id)}
        assert ids(caller.get("/logs", **own)) == [rows["same project"], rows["own"]]
        assert ids(caller.get("/logs", apiKeyId=str(key.id))) == [rows["own"]]
        join(world.acme, world.sam, Role.DEVELOPER)
        sam = signed_in(world.sam)
        assert ids(sam.get("/logs", orgId=str(world.elsewhere.id))) == [rows["elsewhere"]]
        assert ids(sam.get("/logs", projectId=str(second_project.id))) == [rows["second project"]]
        assert ids(sam.get("/logs", apiKeyId=str(key.id))) == [rows["own"]]
        # Both within the scope, nothing in common.
        assert ids(sam.get("/logs", orgId=str(world.elsewhere.id), projectId=str(second_project.id))) == []
        assert ids(sam.get("/logs", projectId=str(second_project.id), apiKeyId=str(key.id))) == []

    @pytest.mark.parametrize("name", ["orgId", "projectId", "apiKeyId", "providerKeyId"])
    def test_an_id_outside_is_403(self, world: World, caller: Caller, name: str) -> None:
        outside = {
            "orgId": world.elsewhere.id,
            "projectId": world.elsewhere_project.id,
            "apiKeyId": make_key(world.sam, world.elsewhere_project).key.id,
            "providerKeyId": own_credential(world.elsewhere).id,
        }
        what = {"orgId": "organization", "projectId": "project", "apiKeyId": "API key", "providerKeyId": "provider key"}
        for asking in (caller, signed_in(world.olivia)):
            for identifier in (outside[name], new_id(), "nonsense"):
                message = refusal(asking.get("/logs", **{name: str(identifier)}), 403)
                assert message == f"You may not see the logs of this {what[name]}"

    def test_a_key_may_not_name_another_project_of_its_organization(
        self, world: World, caller: Caller, second_project: Project
    ) -> None:
        refusal(caller.get("/logs", projectId=str(second_project.id)), 403)
        refusal(caller.get("/logs/unique-models", projectId=str(second_project.id)), 403)
        refusal(caller.get("/logs", apiKeyId=str(make_key(world.olivia, second_project).key.id)), 403)


def own_credential(organization: Organization) -> ProviderKey:
    """Return a provider key of the organization's."""
    return ProviderKey.objects.create(
        organization=organization, provider="openai", encrypted_token=b"sealed", last_four="1234"
    )


class TestFilters:
    """Each filter of 4.4 finds its own and nothing else."""

    @pytest.mark.parametrize(
        ("query", "found", "others"),
        [
            ({"model": "gpt-5"}, {"used_model": "gpt-5"}, [{"used_model": "gpt-5-mini"}]),
            (
                {"model": "azure/gpt-5"},
                {"used_model": "gpt-5", "used_provider": "azure"},
                [{"used_model": "gpt-5", "used_provider": "openai"}, {"used_model": "o3", "used_provider": "azure"}],
            ),
            (
                {"model": "custom:mine/org/llama"},
                {"used_model": "org/llama", "used_provider": "custom:mine"},
                [{"used_model": "llama", "used_provider": "custom:mine"}],
            ),
            ({"model": "org/llama"}, {"used_model": "org/llama"}, [{"used_model": "llama"}]),
            ({"provider": "azure"}, {"used_provider": "azure"}, [{}]),
            ({"finishReason": "stop"}, {"finish_reason": "stop"}, [{"finish_reason": "length"}, {}]),
            (
                {"unifiedFinishReason": "canceled"},
                {"unified_finish_reason": "canceled"},
                [{"unified_finish_reason": "completed"}],
            ),
            ({"source": "web"}, {"source": "web"}, [{"source": "Web"}, {"source": "webapp"}, {}]),
            (
                {"customHeaderKey": "team"},
                {"custom_headers": {"team": "blue"}},
                [{"custom_headers": {"teams": "blue"}}, {}],
            ),
            ({"customHeaderKey": "Team"}, {"custom_headers": {"team": "blue"}}, [{"custom_headers": {"t": "team"}}]),
            (
                {"customHeaderKey": "team", "customHeaderValue": "blue"},
                {"custom_headers": {"team": "blue", "more": "red"}},
                [{"custom_headers": {"team": "red", "more": "blue"}}, {"custom_headers": {"team": "blues"}}, {}],
            ),
            (
                {"customHeaderValue": 'b"l\\ue'},
                {"custom_headers": {"team": 'b"l\\ue'}},
                [{"custom_headers": {'b"l\\ue': "team"}}, {}],
            ),
            (
                {"model": "gpt-5", "source": "web", "provider": "azure"},
                {"used_model": "gpt-5", "source": "web", "used_provider": "azure"},
                [
                    {"source": "web"},
                    {"used_provider": "azure"},
                    {"source": "web", "used_provider": "azure", "used_model": "o3"},
                ],
            ),
        ],
    )
    def test_a_filter(
        self, caller: Caller, key: ApiKey, query: dict[str, str], found: dict[str, Any], others: list[dict[str, Any]]
    ) -> None:
        [expected, *_] = write(*(entry(key, **fields) for fields in (found, *others)))
        assert ids(caller.get("/logs", **query)) == [expected]

    def test_provider_key(self, world: World, caller: Caller, key: ApiKey) -> None:
        mine, other = own_credential(world.acme), own_credential(world.acme)
        [expected, *_] = write(entry(key, provider_key_id=mine.id), entry(key, provider_key_id=other.id), entry(key))
        assert ids(caller.get("/logs", providerKeyId=str(mine.id))) == [expected]

    def test_start_and_end_are_included_to_the_millisecond(self, caller: Caller, key: ApiKey) -> None:
        noon = ago(days=1).replace(hour=12, minute=0, second=0, microsecond=0)
        moments = [noon + timedelta(milliseconds=offset) for offset in (-1, 0, 1, 2)]
        written = write(*(entry(key, id=id_at(moment)) for moment in moments))
        start, end = moments[1].isoformat(), moments[2].isoformat()
        assert ids(caller.get("/logs", startDate=start, endDate=end)) == [written[2], written[1]]
        in_tokyo = (moments[2] + timedelta(hours=9)).replace(tzinfo=None).isoformat() + "+09:00"
        assert ids(caller.get("/logs", startDate=in_tokyo)) == [written[3], written[2]]
        # Without an offset it is UTC.
        assert ids(caller.get("/logs", endDate=moments[0].replace(tzinfo=None).isoformat())) == [written[0]]

    def test_a_date_alone_is_the_whole_day(self, caller: Caller, key: ApiKey) -> None:
        midnight = ago(days=1).replace(hour=0, minute=0, second=0, microsecond=0)
        moments = [midnight + timedelta(milliseconds=offset) for offset in (-1, 0, 86_399_999, 86_400_000)]
        written = write(*(entry(key, id=id_at(moment)) for moment in moments if moment < ago()))
        day = midnight.date().isoformat()
        assert ids(caller.get("/logs", startDate=day, endDate=day)) == written[1:3][::-1]

    @pytest.mark.parametrize(
        ("query", "names"),
        [
            ({"startDate": "yesterday"}, "startDate: Must be an ISO 8601 date or time"),
            ({"endDate": "2026-13-01"}, "endDate: Must be an ISO 8601 date or time"),
            ({"startDate": "2026-02-02", "endDate": "2026-02-01"}, "startDate: Must not be after the end"),
            ({"endDate": "9999-12-31T23:59:59-12:00"}, "endDate: Must be an ISO 8601 date or time"),
            ({"limit": "0"}, "limit: Must be a whole number from 1 to 100"),
            ({"limit": "101"}, "limit: Must be a whole number from 1 to 100"),
            ({"limit": "ten"}, "limit: Must be a whole number from 1 to 100"),
            ({"orderBy": "cost_asc"}, "orderBy: Must be one of: createdAt_asc, createdAt_desc"),
            ({"model": ""}, "model: Must not be blank"),
            ({"source": "a\0"}, "source: Must not have null characters"),
        ],
    )
    def test_what_cannot_be_meant_is_400_naming_it(self, caller: Caller, query: dict[str, str], names: str) -> None:
        assert refusal(caller.get("/logs", **query), 400) == f"Invalid request parameters: {names}"

    @pytest.mark.parametrize("text", ["'; DROP TABLE request_log; --", "%", "_", "\\", "世界", '"', "{}"])
    def test_a_filter_is_taken_literally(self, caller: Caller, key: ApiKey, text: str) -> None:
        write(entry(key, source="web", custom_headers={"team": "blue"}))
        for name in (
            "model",
            "provider",
            "finishReason",
            "unifiedFinishReason",
            "source",
            "customHeaderKey",
            "customHeaderValue",
        ):
            assert ids(caller.get("/logs", **{name: text})) == []
        assert RequestLog.objects.count() == 1


class TestPages:
    """Cursor-based: pass the previous `nextCursor` as `cursor`."""

    @pytest.fixture
    def written(self, key: ApiKey) -> list[UUID]:
        """Seven rows, oldest first, four of them of one millisecond."""
        moment = ago(minutes=5)
        same = sorted(id_at(moment) for _ in range(4))
        earlier, later = id_at(moment - timedelta(days=1)), [id_at(moment + timedelta(seconds=n)) for n in (1, 2)]
        return write(*(entry(key, id=identifier) for identifier in (earlier, *same, *later)))

    @staticmethod
    def pages(caller: Caller, between: Callable[[], object] = lambda: None, **query: str) -> list[list[UUID]]:
        """Return the pages from the first to the last; `between` happens before each further one."""
        found, cursor = [], {}
        while True:
            answer = body(caller.get("/logs", **query, **cursor))
            found.append([UUID(log["id"]) for log in answer["logs"]])
            pagination = answer["pagination"]
            assert (pagination["limit"], pagination["hasMore"]) == (
                int(query["limit"]),
                pagination["nextCursor"] is not None,
            )
            if not pagination["hasMore"]:
                return found
            cursor = {"cursor": pagination["nextCursor"]}
            between()

    @pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8])
    @pytest.mark.parametrize("order", ["createdAt_desc", "createdAt_asc"])
    def test_pages_make_up_the_whole_in_order(
        self, caller: Caller, written: list[UUID], limit: int, order: str
    ) -> None:
        expected = written if order == "createdAt_asc" else written[::-1]
        pages = self.pages(caller, limit=str(limit), orderBy=order)
        assert [identifier for page in pages for identifier in page] == expected
        assert [len(page) for page in pages[:-1]] == [limit] * (len(pages) - 1)
        assert len(pages) == -(-len(written) // limit)

    @pytest.mark.parametrize("limit", [1, 4, 100])
    def test_pages_reach_over_months(self, world: World, caller: Caller, key: ApiKey, limit: int) -> None:
        Organization.objects.filter(id=world.acme.id).update(plan=Plan.ENTERPRISE)
        edges = (364.9, 300, 200, 150, 62, 61.5, 15, 14, 13, 3, 2.5, 2, 1, 0)
        written = write(*(entry(key, id=id_at(ago(days=days, seconds=1))) for days in edges))
        for order, expected in (("createdAt_desc", written[::-1]), ("createdAt_asc", written)):
            pages = self.pages(caller, limit=str(limit), orderBy=order)
            assert [identifier for page in pages for identifier in page] == expected

    def test_new_rows_move_no_page(self, caller: Caller, key: ApiKey, written: list[UUID]) -> None:
        pages = self.pages(caller, lambda: write(entry(key), entry(key)), limit="2")
        assert [identifier for page in pages for identifier in page] == written[::-1]

    def test_oldest_first_new_rows_come_last(self, caller: Caller, key: ApiKey, written: list[UUID]) -> None:
        extra: list[UUID] = []

        def add() -> None:
            if len(extra) < 2:
                extra.extend(write(entry(key)))

        pages = self.pages(caller, add, limit="3", orderBy="createdAt_asc")
        assert [identifier for page in pages for identifier in page] == [*written, *extra]

    def test_a_session_pages_over_several_organizations(self, world: World, key: ApiKey, written: list[UUID]) -> None:
        other = make_organization(owner=world.olivia, name="Second")
        others = make_key(world.olivia, other.projects.get()).key
        mixed = sorted([*written, *write(*(entry(others, id=id_at(ago(minutes=n))) for n in (3, 5, 7)))])
        pages = self.pages(signed_in(world.olivia), limit="4")
        assert [identifier for page in pages for identifier in page] == mixed[::-1]

    def test_the_default_is_fifty_newest_first(self, caller: Caller, key: ApiKey) -> None:
        written = write(*(entry(key) for _ in range(51)))
        answer = body(caller.get("/logs"))
        assert [UUID(log["id"]) for log in answer["logs"]] == sorted(written)[:0:-1]
        assert (answer["pagination"]["limit"], answer["pagination"]["hasMore"]) == (50, True)

    @pytest.mark.parametrize(
        "cursor", ["nonsense", "AAAA", "_____________________w", "AZoAAAAAQACAAAAAAAAAAA", "世", "a" * 5000]
    )
    def test_a_cursor_that_no_answer_gave_is_400(self, caller: Caller, written: list[UUID], cursor: str) -> None:
        message = refusal(caller.get("/logs", cursor=cursor), 400)
        assert message == "Invalid request parameters: cursor: Must be the nextCursor of an earlier answer"


class TestRetention:
    """Section 8: free 3 days, pro 90; older rows are not shown, removed yet or not."""

    @pytest.mark.parametrize(("plan", "days"), [(Plan.FREE, 3), (Plan.PRO, 90), (Plan.ENTERPRISE, 365)])
    def test_a_log_is_shown_as_long_as_the_plan_says(
        self, world: World, caller: Caller, key: ApiKey, plan: Plan, days: int
    ) -> None:
        Organization.objects.filter(id=world.acme.id).update(plan=plan)
        [past, shown] = write(*(entry(key, id=id_at(ago(days=days, minutes=minutes))) for minutes in (1, -1)))
        assert RequestLog.objects.count() == 2
        for asking in (caller, signed_in(world.olivia)):
            assert ids(asking.get("/logs")) == [shown]
            assert ids(asking.get("/logs", startDate="2020-01-01")) == [shown]
            refusal(asking.get(f"/logs/{past}"), 404)
            assert body(asking.get(f"/logs/{shown}"))["log"]["id"] == str(shown)

    def test_each_organization_of_a_user_by_its_own_plan(self, world: World, key: ApiKey) -> None:
        pro = make_organization(owner=world.olivia, name="Pro", plan=Plan.PRO)
        professional = make_key(world.olivia, pro.projects.get()).key
        moment = ago(days=4)
        [_, shown] = write(entry(key, id=id_at(moment)), entry(professional, id=id_at(moment)))
        assert ids(signed_in(world.olivia).get("/logs")) == [shown]


class TestUniqueModels:
    """`GET /logs/unique-models`."""

    def test_the_models_and_providers_in_use(self, world: World, caller: Caller, key: ApiKey) -> None:
        others = make_key(world.sam, world.elsewhere_project).key
        write(
            *(entry(key, used_model=model, used_provider=provider) for model in ("b", "a") for provider in ("y", "x")),
            *(entry(key) for _ in range(5)),
            # Failed before a model was chosen.
            entry(key, used_model="", used_provider=""),
            entry(others, used_model="secret", used_provider="hidden"),
            entry(key, id=id_at(ago(days=5)), used_model="past", used_provider="gone"),
        )
        expected = {"models": ["a", "b", "gpt-5"], "providers": ["openai", "x", "y"]}
        assert body(caller.get("/logs/unique-models")) == expected
        assert body(caller.get("/logs/unique-models", projectId=str(world.project.id))) == expected
        assert body(signed_in(world.olivia).get("/logs/unique-models")) == expected

    def test_a_session_sees_those_of_all_its_projects_or_of_one(self, world: World, key: ApiKey) -> None:
        second = Project.objects.create(organization=world.acme, name="Second")
        write(entry(key, used_model="a"), entry(make_key(world.olivia, second).key, used_model="b"))
        assert body(signed_in(world.adam).get("/logs/unique-models"))["models"] == ["a", "b"]
        assert body(signed_in(world.adam).get("/logs/unique-models", projectId=str(second.id)))["models"] == ["b"]

    def test_a_project_outside_is_403(self, world: World, caller: Caller) -> None:
        for asking in (caller, signed_in(world.olivia)):
            refusal(asking.get("/logs/unique-models", projectId=str(world.elsewhere_project.id)), 403)


def test_a_full_page_of_new_rows_is_one_query_after_those_that_ask_who_asks(
    world: World, key: ApiKey, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    """The session, the memberships, the plans, the page."""
    write(*(entry(key) for _ in range(60)))
    dana = signed_in(world.dana)
    with django_assert_num_queries(4):
        assert len(ids(dana.get("/logs"))) == 50


def test_times_are_moments_in_utc(caller: Caller, key: ApiKey) -> None:
    write(entry(key, id=id_at(datetime.fromisoformat(ago(hours=1).strftime("%Y-%m-%dT%H:%M:%S.007+00:00")))))
    [log] = body(caller.get("/logs"))["logs"]
    assert log["createdAt"].endswith(".007000Z")


class TestText:
    """`text`: the words of kept prompts and answers."""

    def test_pages_of_found_entries_follow_each_other(self, world: World) -> None:
        key = make_key(world.olivia, world.project)
        kept: dict[str, Any] = {"retention_level": "retain", "used_model": "gpt-5"}
        said = ["the falcon lands", "a falcon", "no bird", "falcon of metadata", "falcon"]
        levels = ["retain", "retain", "retain", "metadata", "retain"]
        rows = [
            entry(key.key, id=id_at(ago(minutes=10 - at)), content=text, **{**kept, "retention_level": level})
            for at, (text, level) in enumerate(zip(said, levels, strict=True))
        ]
        first, second, _, _, last = write(*rows)
        Organization.objects.filter(pk=world.acme.pk).update(retention_level="retain")
        caller = Caller(key.token)
        page = caller.get("/logs", text="falcon", limit="2").json()
        assert [one["id"] for one in page["logs"]] == [str(last), str(second)]
        assert page["logs"][0]["content"] == "falcon"
        cursor = page["pagination"]["nextCursor"]
        page = caller.get("/logs", text="falcon", limit="2", cursor=cursor).json()
        assert [one["id"] for one in page["logs"]] == [str(first)]
        assert page["pagination"] == {"nextCursor": None, "hasMore": False, "limit": 2}
        assert caller.get("/logs", text="falcon", model="claude").json()["logs"] == []
        # Content that the organization keeps no longer is not searched, though it is not cleared yet.
        Organization.objects.filter(pk=world.acme.pk).update(retention_level="metadata")
        assert caller.get("/logs", text="falcon").json()["logs"] == []

    @pytest.mark.parametrize(
        ("query", "param", "message"),
        [
            ({"text": "-"}, "text", "Must have a word to search for"),
            ({"text": ""}, "text", "Must not be blank"),
            ({"text": "x" * 201}, "text", "Must be at most 200 characters long"),
            (
                {"text": "falcon", "orderBy": "createdAt_asc"},
                "orderBy",
                "A search for text lists the newest entries first",
            ),
        ],
    )
    def test_a_search_that_cannot_be_is_refused(
        self, world: World, query: dict[str, str], param: str, message: str
    ) -> None:
        refused = Caller(make_key(world.olivia, world.project).token).get("/logs", **query)
        assert refused.status_code == 400
        assert message in refused.content.decode()
        assert param in refused.content.decode()

    def test_it_is_for_one_organization(self, world: World) -> None:
        # Olivia has Acme alone until she joins the other organization.
        join(world.elsewhere, world.olivia, Role.DEVELOPER)
        olivia = signed_in(world.olivia)
        refused = olivia.get("/logs", text="falcon")
        assert (refused.status_code, "A search for text needs one organization" in refused.content.decode()) == (
            400,
            True,
        )
        assert olivia.get("/logs", text="falcon", orgId=str(world.acme.id)).json()["logs"] == []
