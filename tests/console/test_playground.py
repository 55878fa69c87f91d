"""The playground: asks as any request does, in the visitor's name, without a key in the page."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.db import connection

from apps.console.browser_session import COOKIE
from apps.keys.actions import PLAYGROUND, count_of_keys, open_playground_key
from apps.keys.models import ApiKey, IamRule
from apps.logs.models import RequestLog
from apps.organizations.models import AuditEntry, Membership, Organization, Project, Role
from tests.logs.entries import entry, write
from tests.support.cast import make_user
from tests.support.console_client import Visitor, page
from tests.support.upstream import Caller, chunks_of, nothing_happened, settle_all

HELLO = {"model": "sandbox/echo", "messages": [{"role": "user", "content": "hello"}]}


class Player:
    """A user who has the playground open."""

    def __init__(self, caller: Caller, **options: Any) -> None:
        self.organization: Organization = caller.key.project.organization
        self.project: Project = caller.key.project
        self.visitor = Visitor(options.pop("user", caller.key.created_by), **options)

    def ask(self, body: Any = HELLO, asked: str = "chat", project: Any = None, **headers: str) -> Any:
        """Ask as the page's script does."""
        path = page(self.organization, f"playground/{asked}?project={project or self.project.id}")
        return self.visitor.client.post(path, json.dumps(body), content_type="application/json", headers=headers)


@pytest.fixture
def player(caller: Caller) -> Player:
    """The owner of the caller's organization."""
    return Player(caller)


def test_a_request_is_answered_billed_and_logged_as_any_other_in_the_visitors_name(
    caller: Caller, player: Player
) -> None:
    answer = player.ask()

    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"] == "You said: hello"
    assert settle_all() == 1
    row = RequestLog.objects.get()
    key = ApiKey.objects.get(prefix=PLAYGROUND)
    assert (row.api_key_id, row.project_id) == (key.id, player.project.id)
    assert row.cost > 0
    player.organization.refresh_from_db()
    key.refresh_from_db()
    assert 100 - player.organization.credits == key.usage == row.cost
    assert (key.created_by, key.description, key.masked_token) == (caller.key.created_by, "Playground", "playground...")


def test_one_key_is_made_whose_token_nobody_has_and_which_counts_towards_no_plan(player: Player) -> None:
    before = count_of_keys(player.project)
    for _ in range(2):
        assert player.ask().status_code == 200
    key = ApiKey.objects.get(prefix=PLAYGROUND)
    assert count_of_keys(player.project) == before
    assert AuditEntry.objects.filter(action="api_key.create", resource_id=str(key.id)).count() == 1


def test_a_stream_is_passed_on_with_what_it_cost_and_who_answered(player: Player) -> None:
    Organization.objects.update(retention_level="retain")
    answer = player.ask({**HELLO, "stream": True, "stream_options": {"include_usage": True}})

    assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    chunks = chunks_of(answer)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-2]) == "You said: hello"
    assert chunks[-2]["usage"]["cost"] > 0
    assert chunks[-2]["metadata"]["used_provider"] == "sandbox"
    assert settle_all() == 1
    assert RequestLog.objects.get().source == "playground"


@pytest.mark.django_db(transaction=True)
def test_no_database_connection_is_held_while_a_stream_runs(caller: Caller, player: Player) -> None:
    answer = player.ask({**HELLO, "stream": True})
    assert connection.connection is None
    assert chunks_of(answer)[-1] == "[DONE]"


def test_rules_of_its_key_hold_for_it(caller: Caller, player: Player) -> None:
    key = open_playground_key(user=caller.key.created_by, project_id=player.project.id)
    IamRule.objects.create(api_key=key, rule_type="deny_models", rule_value={"models": ["echo"]})
    answer = player.ask()
    assert answer.status_code == 403
    assert nothing_happened(caller)


def test_who_cannot_pay_is_refused_as_by_the_api(caller: Caller, player: Player) -> None:
    Organization.objects.update(credits=0)
    answer = player.ask()
    assert (answer.status_code, answer.json()["error"]["code"]) == (402, "insufficient_credits")
    assert nothing_happened(caller)


def test_a_playground_that_was_switched_off_stays_off(caller: Caller, player: Player) -> None:
    assert player.ask().status_code == 200
    settle_all()
    ApiKey.objects.filter(prefix=PLAYGROUND).update(status="inactive")
    answer = player.ask()
    assert answer.status_code == 403
    assert "switched off" in answer.json()["error"]["message"]
    assert ApiKey.objects.filter(prefix=PLAYGROUND).count() == 1
    assert settle_all() == 0


@pytest.mark.parametrize("project", ["", "nonsense", "another organization's"])
def test_a_project_of_others_is_not_found(caller: Caller, player: Player, project: str) -> None:
    if project.startswith("another"):
        other = Organization.objects.create(name="Elsewhere", credits=100)
        # The visitor is a member there too: the path says which organization is meant.
        Membership.objects.create(organization=other, user=caller.key.created_by, role=Role.OWNER)
        project = str(Project.objects.create(organization=other, name="Theirs").id)
    answer = player.ask(project=project or "none")
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, "Project not found")
    assert not ApiKey.objects.filter(prefix=PLAYGROUND).exists()
    assert nothing_happened(caller)


def test_strangers_and_the_signed_out_ask_nothing(caller: Caller, player: Player) -> None:
    stranger = Player(caller, user=make_user("Sam"))
    assert stranger.ask().status_code == 403
    player.visitor.client.cookies.pop(COOKIE)
    assert player.ask().status_code == 302
    # A key in a header is no session.
    assert player.ask(authorization=f"Bearer {caller.token}").status_code == 302
    assert not ApiKey.objects.filter(prefix=PLAYGROUND).exists()
    assert nothing_happened(caller)


def test_a_request_without_the_pages_token_is_refused(caller: Caller) -> None:
    player = Player(caller, check_forgery=True)
    assert player.ask().status_code == 403
    assert nothing_happened(caller)
    shown = player.visitor.open(page(player.organization, "playground")).content.decode()
    found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', shown)
    assert found is not None
    assert player.ask(**{"x-csrftoken": found[1]}).status_code == 200


def test_the_page_lists_models_with_prices_and_has_no_key(caller: Caller, player: Player) -> None:
    assert player.ask().status_code == 200
    shown = player.visitor.open(page(player.organization, "playground"), model="gpt-5").content.decode()
    assert 'data-model value="gpt-5"' in shown
    assert '<option value="echo" label="$0.15 in, $0.6 out per million tokens"' in shown
    assert '<option value="painter"' in shown
    assert '<option value="embedder"' not in shown
    assert not re.search(r"gw_(dev|live)_\w", shown)
    assert ApiKey.objects.get(prefix=PLAYGROUND).digest.hex() not in shown


def test_what_is_chosen_by_the_query_is_escaped(player: Player) -> None:
    shown = player.visitor.open(page(player.organization, "playground"), model='"><script>x').content.decode()
    assert "<script>x" not in shown


def test_pictures_and_explanations_are_asked_for_the_same_way(caller: Caller, player: Player) -> None:
    picture = player.ask({"model": "sandbox/painter", "prompt": "A lighthouse"}, "images")
    assert picture.json()["data"][0]["b64_json"].startswith("iVBOR")
    assert settle_all() == 1
    told = player.ask(HELLO, "explain").json()
    assert told["order"] == [{"provider": "sandbox", "model": "echo", "mode": "credits"}]
    assert player.ask(HELLO, "embeddings").status_code == 404
    assert settle_all() == 0


def test_the_short_address_leads_to_the_first_organization(caller: Caller, player: Player) -> None:
    answer = player.visitor.open("/app/playground", model="gpt-5")
    assert answer.headers["Location"] == page(player.organization, "playground?model=gpt-5")


TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}


@pytest.mark.parametrize(
    ("route", "messages", "tools"),
    [
        (
            "chat_completions",
            [{"role": "system", "content": "Be kind"}, {"role": "user", "content": "hi"}],
            [TOOL],
        ),
        (
            "messages",
            [{"role": "system", "content": [{"type": "text", "text": "Be kind"}]}, {"role": "user", "content": "hi"}],
            [{"name": "find", "input_schema": {"type": "object", "properties": {}}}],
        ),
        (
            "responses",
            [{"role": "system", "content": "Be kind"}, {"role": "user", "content": "hi"}],
            [{"type": "function", "name": "find", "parameters": {"type": "object", "properties": {}}, "strict": False}],
        ),
    ],
)
def test_a_logged_request_opens_as_a_chat_whichever_its_format(
    caller: Caller, player: Player, route: str, messages: Any, tools: Any
) -> None:
    fields = {"temperature": 0.5, "max_tokens": 9, "streamed": True, "requested_model": "sandbox/echo"}
    [logged] = write(entry(caller.key, route=route, messages=messages, tools=tools, **fields))
    shown = player.visitor.open(page(player.organization, "playground"), log=str(logged))
    replayed = shown.context["replayed"]
    assert (shown.context["first"], replayed["log"], replayed["system"]) == ("sandbox/echo", str(logged), "Be kind")
    assert replayed["messages"] == [{"role": "user", "content": "hi"}]
    assert [tool["function"]["name"] for tool in replayed["tools"]] == ["find"]
    assert (replayed["temperature"], replayed["maxTokens"], replayed["stream"]) == (0.5, 9, True)
    # Nothing is asked before the visitor sends it.
    assert nothing_happened(caller)
    asked = {"model": "sandbox/echo", "messages": replayed["messages"], "tools": replayed["tools"]}
    assert player.ask(asked).status_code == 200


@pytest.mark.parametrize("kept", ["nothing", "others", "nonsense"])
def test_only_a_request_of_the_organization_that_was_kept_opens(caller: Caller, player: Player, kept: str) -> None:
    messages = [{"role": "user", "content": "secret words"}]
    [bare, others] = write(entry(caller.key), entry(messages=messages))
    log = {"nothing": str(bare), "others": str(others)}.get(kept, kept)
    answer = player.visitor.open(page(player.organization, "playground"), log=log)
    assert (answer.status_code, b"secret words" in answer.content) == (404, False)


def test_a_logged_text_is_no_markup_in_the_playground(caller: Caller, player: Player) -> None:
    hostile = "</script><script>alert(1)</script>"
    [logged] = write(entry(caller.key, messages=[{"role": "user", "content": hostile}], requested_model=hostile))
    shown = player.visitor.open(page(player.organization, "playground"), log=str(logged))
    assert shown.status_code == 200
    assert "<script>alert" not in shown.content.decode()
