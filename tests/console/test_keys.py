"""API keys by page: made once, shown once, changed, limited, ruled, rotated, revoked."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from apps.keys.actions import open_playground_key
from apps.keys.models import ApiKey, IamRule
from apps.keys.secrets import digest_of
from apps.logs.models import ActivityDelta
from apps.logs.rollup import roll_up
from apps.logs.usage import KeyUse
from apps.organizations.models import Organization, Plan
from tests.support.cast import World, make_key, make_organization
from tests.support.console_client import Visitor, page, words


def token_in(response: Any) -> str:
    return str(response.context["made"]["token"])


def form_of(key: ApiKey, **changes: str) -> dict[str, str]:
    """Return the fields of the form as the page shows them, with some changed."""
    shown = {
        "action": "change",
        "description": key.description,
        "usageLimit": "",
        "expiresAt": key.expires_at.date().isoformat() if key.expires_at else "",
        "periodLimit.amount": "",
        "periodLimit.period": "",
        "requestsPerMinute": "",
        "allowedOrigins": "",
    }
    return shown | changes


@pytest.fixture
def key(world: World) -> ApiKey:
    return make_key(world.dana, world.project, "Dana's").key


def test_a_key_without_a_limit_per_period_says_so(world: World, key: ApiKey) -> None:
    for path in ("keys/new", f"keys/{key.id}"):
        shown = Visitor(world.dana).open(page(world.acme, path)).content.decode()
        [choices] = re.findall(r'<select[^>]*name="periodLimit.period"[^>]*>(.*?)</select>', shown, re.DOTALL)
        assert re.findall(r">([^<]+)</option>", choices) == [
            *("No limit per period", "per hour", "per day", "per week", "per month"),
        ]


def test_a_key_is_made_with_its_limits_and_shown_once_however_often_the_form_is_sent(world: World) -> None:
    visitor = Visitor(world.dana)
    fields = {
        "description": "Bot",
        "projectId": str(world.project.id),
        "usageLimit": "12.50",
        "periodLimit.amount": "2",
        "periodLimit.period": "day",
        "requestsPerMinute": "30",
        "allowedOrigins": "https://app.example.com\nhttps://b.example.com",
        "expiresAt": "2999-12-31",
    }
    first = visitor.send(page(world.acme, "keys/new"), fields, once="one form")
    second = visitor.send(page(world.acme, "keys/new"), fields, once="one form")
    assert first.status_code == second.status_code == 200
    said = words(first)
    for line in (
        "export OPENAI_BASE_URL=http://127.0.0.1:8000/v1 export OPENAI_API_KEY=$GATEWAY_API_KEY",
        "export ANTHROPIC_BASE_URL=http://127.0.0.1:8000 export ANTHROPIC_AUTH_TOKEN=$GATEWAY_API_KEY",
        "export GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:8000 export GEMINI_API_KEY=$GATEWAY_API_KEY",
        "export OLLAMA_HOST=http://127.0.0.1:8000 export OLLAMA_API_KEY=$GATEWAY_API_KEY",
    ):
        assert line in said
    assert token_in(first) == token_in(second)
    made = ApiKey.objects.get()
    assert bytes(made.digest) == digest_of(token_in(first))
    assert (made.usage_limit, made.period_limit, made.period) == (Decimal("12.50"), Decimal(2), "day")
    assert (made.requests_per_minute, made.created_by) == (30, world.dana)
    assert made.allowed_origins == ["https://app.example.com", "https://b.example.com"]
    assert made.expires_at == datetime(2999, 12, 31, 23, 59, 59, 999999, UTC)
    listed = visitor.open(page(world.acme, "keys"))
    assert token_in(first) not in listed.content.decode()
    assert made.masked_token in words(listed)


def test_what_is_wrong_is_said_beside_the_field_and_nothing_is_made(world: World) -> None:
    response = Visitor(world.dana).send(
        page(world.acme, "keys/new"),
        {"description": "Bot", "projectId": str(world.project.id), "usageLimit": "a lot", "requestsPerMinute": "0"},
    )
    assert response.status_code == 400
    assert set(response.context["form"].errors) == {"usageLimit", "requestsPerMinute"}
    assert 'value="a lot"' in response.content.decode()
    assert ApiKey.objects.count() == 0


def test_a_project_of_others_is_none_to_choose(world: World) -> None:
    fields = {"description": "Bot", "projectId": str(world.elsewhere_project.id)}
    for user in (world.dana, world.olivia):
        assert Visitor(user).send(page(world.acme, "keys/new"), fields).status_code == 400
    assert ApiKey.objects.count() == 0


def test_developers_see_their_own_keys_and_admins_all(world: World, key: ApiKey) -> None:
    make_key(world.olivia, world.project, "Olivia's")
    make_key(world.sam, world.elsewhere_project, "Sam's")
    path = page(world.acme, "keys")
    assert [one.description for one in Visitor(world.dana).open(path).context["keys"]] == ["Dana's"]
    assert {one.description for one in Visitor(world.adam).open(path).context["keys"]} == {"Dana's", "Olivia's"}
    assert list(Visitor(world.adam).open(path, show="mine").context["keys"]) == []
    dana_asks_for_all = Visitor(world.dana).open(path, show="all")
    assert [one.description for one in dana_asks_for_all.context["keys"]] == ["Dana's"]


@pytest.mark.parametrize("action", ["change", "deactivate", "revoke", "rotate", "add-rule"])
def test_a_stranger_does_nothing_to_a_key(world: World, key: ApiKey, action: str) -> None:
    olivias = make_key(world.olivia, world.project).key
    fields = form_of(key, action=action, kind="models", effect="deny", models="gpt-5", description="Taken")
    tries = [
        (world.sam, world.acme, key, 403),
        # By an organization of one's own, too.
        (world.sam, world.elsewhere, key, 403),
        # A member's, but another developer's.
        (world.dana, world.acme, olivias, 403),
    ]
    for user, organization, whose, status in tries:
        response = Visitor(user).send(page(organization, f"keys/{whose.id}"), fields)
        assert response.status_code == status
    assert list(ApiKey.objects.order_by("id").values_list("description", "status")) == [
        ("Dana's", "active"),
        ("a key", "active"),
    ]
    assert IamRule.objects.count() == 0


def test_a_key_is_not_found_beneath_another_organization_of_ones_own(world: World, key: ApiKey) -> None:
    other = make_organization(owner=world.olivia, name="Other")
    assert Visitor(world.olivia).open(page(other, f"keys/{key.id}")).status_code == 404
    assert Visitor(world.olivia).open(page(world.acme, "keys/not-an-id")).status_code == 404


def test_limits_are_changed_and_a_day_left_as_it_is_stays_the_same_moment(world: World, key: ApiKey) -> None:
    ends = timezone.now() + timedelta(minutes=5)
    ApiKey.objects.filter(pk=key.pk).update(expires_at=ends)
    key.refresh_from_db()
    visitor, path = Visitor(world.dana), page(world.acme, f"keys/{key.id}")
    changes = {"description": "New words", "usageLimit": "3", "periodLimit.amount": "1", "periodLimit.period": "hour"}
    assert visitor.send(path, form_of(key, **changes)).status_code == 302
    key.refresh_from_db()
    assert (key.description, key.usage_limit, key.period_limit, key.period) == ("New words", 3, 1, "hour")
    assert key.expires_at == ends
    assert visitor.send(path, form_of(key)).status_code == 302
    key.refresh_from_db()
    assert (key.usage_limit, key.period_limit, key.period) == (None, None, "")


def test_a_name_that_was_emptied_is_refused_and_nothing_changes(world: World, key: ApiKey) -> None:
    answer = Visitor(world.dana).send(page(world.acme, f"keys/{key.id}"), form_of(key, description=" ", usageLimit="5"))
    assert (answer.status_code, answer.context["form"].errors) == (400, {"description": "Required"})
    key.refresh_from_db()
    assert (key.description, key.usage_limit) == ("Dana's", None)


def test_an_amount_without_a_period_is_said(world: World, key: ApiKey) -> None:
    form = form_of(key, **{"periodLimit.amount": "5"})
    response = Visitor(world.dana).send(page(world.acme, f"keys/{key.id}"), form)
    assert response.context["form"].errors == {"periodLimit.period": "Required"}
    key.refresh_from_db()
    assert key.period_limit is None


def test_it_is_turned_off_and_on_and_revoked_for_good(world: World, key: ApiKey) -> None:
    visitor, path = Visitor(world.dana), page(world.acme, f"keys/{key.id}")
    for action, status in (("deactivate", "inactive"), ("activate", "active"), ("revoke", "deleted")):
        assert visitor.send(path, {"action": action}).status_code == 302
        key.refresh_from_db()
        assert key.status == status
    assert visitor.open(path).status_code == 404


def test_each_kind_of_rule_has_its_form(world: World, key: ApiKey) -> None:
    visitor, path = Visitor(world.dana), page(world.acme, f"keys/{key.id}")
    forms: list[dict[str, Any]] = [
        {"kind": "models", "effect": "allow", "models": "gpt-5\n gpt-5-mini \n\ngpt-5"},
        {"kind": "providers", "effect": "deny", "providers": ["openai", "groq"]},
        {"kind": "pricing", "effect": "allow", "pricingType": "paid", "maxInputPrice": "2.5", "maxOutputPrice": ""},
        {"kind": "mcp_servers", "effect": "deny", "mcpServers": "tickets\ntickets/echo\ntickets"},
    ]
    for fields in forms:
        assert visitor.send(path, {"action": "add-rule", **fields}).status_code == 302
    rules = list(key.iam_rules.order_by("created_at"))
    assert [(one.rule_type, one.rule_value) for one in rules] == [
        ("allow_models", {"models": ["gpt-5", "gpt-5-mini"]}),
        ("deny_providers", {"providers": ["openai", "groq"]}),
        ("allow_pricing", {"pricingType": "paid", "maxInputPrice": "2.5"}),
        ("deny_mcp_servers", {"mcpServers": ["tickets", "tickets/echo"]}),
    ]
    shown = words(visitor.open(path))
    assert "input at most $2.5 per million tokens" in shown
    assert "Deny MCP servers tickets , tickets/echo no server of this project: tickets, tickets/echo" in shown
    visitor.send(path, {"action": "switch-rule", "rule": str(rules[0].id)})
    visitor.send(path, {"action": "remove-rule", "rule": str(rules[1].id)})
    assert list(key.iam_rules.order_by("created_at").values_list("rule_type", "status")) == [
        ("allow_models", "inactive"),
        ("allow_pricing", "active"),
        ("deny_mcp_servers", "active"),
    ]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"kind": "models", "effect": "allow", "models": " "}, "models"),
        ({"kind": "pricing", "effect": "allow", "pricingType": "cheap"}, "pricingType"),
        ({"kind": "pricing", "effect": "deny", "pricingType": "paid", "maxInputPrice": "-1"}, "maxInputPrice"),
        ({"kind": "mcp_servers", "effect": "deny", "mcpServers": "Tickets"}, "mcpServers"),
        ({"kind": "nothing", "effect": "allow"}, None),
    ],
)
def test_a_rule_that_says_nothing_is_refused(
    world: World, key: ApiKey, fields: dict[str, str], field: str | None
) -> None:
    response = Visitor(world.dana).send(page(world.acme, f"keys/{key.id}"), {"action": "add-rule", **fields})
    assert response.status_code == 400
    form = response.context["form"]
    assert (list(form.errors), bool(form.problem)) == ([field] if field else [], field is None)
    assert IamRule.objects.count() == 0


def test_a_rule_that_is_refused_is_told_at_its_field_and_keeps_its_ticks(world: World, key: ApiKey) -> None:
    visitor, path = Visitor(world.dana), page(world.acme, f"keys/{key.id}")
    add = {"action": "add-rule", "effect": "deny"}
    none = visitor.send(path, {**add, "kind": "providers", "providers": [""]})
    assert none.context["form"].errors == {"providers": "Must be a list of 1 to 500 ids"}
    assert 'id="providers-error"' in none.content.decode()
    strange = visitor.send(
        path, {"action": "add-rule", "kind": "providers", "effect": "x", "providers": ["", "openai"]}
    )
    assert 'value="openai" checked' in strange.content.decode()
    long = visitor.send(path, {**add, "kind": "models", "models": f"gpt-5\n{'x' * 300}"})
    assert long.context["form"].errors == {"models": f"“{'x' * 80}…”: Must be a string of 1 to 255 characters"}
    assert IamRule.objects.count() == 0
    visitor.send(path, {**add, "kind": "models", "models": "gpt-5\ngpt-5-mini\ngpt-5"})
    assert IamRule.objects.get().rule_value == {"models": ["gpt-5", "gpt-5-mini"]}


def test_a_rule_of_another_key_is_not_found(world: World, key: ApiKey) -> None:
    olivias = make_key(world.olivia, world.project).key
    rule = IamRule.objects.create(api_key=olivias, rule_type="deny_models", rule_value={"models": ["gpt-5"]})
    response = Visitor(world.dana).send(
        page(world.acme, f"keys/{key.id}"), {"action": "remove-rule", "rule": str(rule.id)}
    )
    assert response.status_code == 400
    assert IamRule.objects.filter(pk=rule.pk).exists()


def test_rotation_shows_a_key_with_the_same_limits_once_for_two_sendings(world: World, key: ApiKey) -> None:
    visitor, path = Visitor(world.dana), page(world.acme, f"keys/{key.id}")
    first = visitor.send(path, {"action": "rotate", "overlapHours": "0"}, once="one form")
    second = visitor.send(path, {"action": "rotate", "overlapHours": "0"}, once="one form")
    assert token_in(first) == token_in(second)
    key.refresh_from_db()
    assert key.status == "deleted"
    living = ApiKey.objects.get(status="active")
    assert (living.description, bytes(living.digest)) == ("Dana's", digest_of(token_in(first)))


def test_a_playgrounds_key_is_revoked_but_never_rotated(world: World) -> None:
    key = open_playground_key(user=world.dana, project_id=world.project.id)
    visitor, path = Visitor(world.dana), page(world.acme, f"keys/{key.id}")
    assert "Rotate key" not in words(visitor.open(path))
    answer = visitor.send(path, {"action": "rotate", "overlapHours": "0"}, once="one form")
    assert answer.status_code == 400
    assert "A playground's API key has no token to replace" in words(answer)
    assert ApiKey.objects.get().status == "active"


def test_many_keys_are_listed_by_pages_newest_first_and_found_by_name_and_project(world: World) -> None:
    Organization.objects.update(plan=Plan.ENTERPRISE)
    crawler = world.acme.projects.create(name="Crawler")
    for number in range(1, 121):
        make_key(world.olivia, crawler if number == 7 else world.project, f"key number {number}")
    path, olivia = page(world.acme, "keys"), Visitor(world.olivia)
    first, last = olivia.open(path), olivia.open(path, page="3")
    for shown, numbers in ((first, range(120, 70, -1)), (last, range(20, 0, -1))):
        assert [one.description for one in shown.context["keys"]] == [f"key number {number}" for number in numbers]
    assert "1 to 50 of 120" in words(first)
    assert ("Older" in words(first), "Newer" in words(first)) == (True, False)
    assert ("Older" in words(last), "Newer" in words(last)) == (False, True)
    # An invalid page number leads to the first or the last page.
    for asked, count in (("0", 20), ("99", 20), ("x", 50)):
        assert len(olivia.open(path, page=asked).context["keys"]) == count, asked
    for wanted, names in (("NUMBER 119", ["key number 119"]), ("crawl", ["key number 7"]), ("%", [])):
        assert [one.description for one in olivia.open(path, q=wanted).context["keys"]] == names, wanted
    quoted = ApiKey.objects.get(description="key number 50")
    theirs = make_key(world.sam, world.elsewhere_project).key
    for wanted in (quoted.masked_token, quoted.last_four):
        assert [one.id for one in olivia.open(path, q=wanted).context["keys"]] == [quoted.id]
    assert list(olivia.open(path, q=theirs.masked_token).context["keys"]) == []
    assert len(olivia.open(path, q="\x00").context["keys"]) == 50
    assert "No matching keys" in words(olivia.open(path, q="<script>"))


def test_its_page_says_how_to_use_it_and_leads_to_its_requests(world: World, key: ApiKey) -> None:
    shown = Visitor(world.olivia).open(page(world.acme, f"keys/{key.id}"))
    assert f'href="{page(world.acme, "logs")}?apiKeyId={key.id}"' in shown.content.decode()
    assert all("YOUR_API_KEY" in one.code for one in shown.context["first_requests"])
    assert "OPENAI_BASE_URL" in words(shown)


def test_the_list_has_the_last_day_and_the_last_week_of_each_key(world: World, key: ApiKey) -> None:
    today = datetime.now(UTC).date()
    quiet, old = (make_key(world.dana, world.project, name).key for name in ("quiet", "old"))
    for used, days, count in ((key, 1, 3), (key, 6, 1), (key, 1, 4), (key, 0, 0), (old, 30, 2)):
        ActivityDelta.objects.create(
            date=today - timedelta(days=days),
            organization_id=world.acme.id,
            project_id=used.project_id,
            api_key_id=used.id,
            model=f"model-{count}",
            provider="openai",
            request_count=count,
        )
    visitor = Visitor(world.dana)
    before = visitor.open(page(world.acme, "keys"))
    roll_up()
    after = visitor.open(page(world.acme, "keys"))
    for answer in (before, after):
        assert {row.description: use for row, use in answer.context["rows"]} == {
            "Dana's": KeyUse(today - timedelta(days=1), [1, 0, 0, 0, 0, 7, 0]),
            "old": KeyUse(today - timedelta(days=30), [0] * 7),
            quiet.description: None,
        }
        assert "yesterday" in words(answer)
        assert 'aria-label="Requests of each of the last 7 days: 1, 0, 0, 0, 0, 7, 0"' in answer.content.decode()
