"""`/v1/key`, `/v1/credits`, `/v1/generation` and `/model/info`: what clients of other gateways ask of theirs."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from apps.billing import ledger
from apps.billing.ledger import Charge
from apps.catalog import catalog_cache
from apps.kernel.ids import new_id
from apps.keys.models import ApiKey
from apps.logs.entry import Entry
from apps.organizations.models import Project
from gateway_project.openapi.document import document
from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import Caller, World, make_key, signed_in

PATHS = ("/v1/key", "/v1/credits", "/v1/generation?id=x")


def conforms(path: str, body: Any) -> None:
    """Hold an answer against the document."""
    told = document()
    schema = told["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    Draft202012Validator({**schema, "components": told["components"]}).validate(body)


def charge(key: ApiKey, cost: str, *, mode: str = "credits") -> Entry:
    """Write down a request of a moment ago, and charge it."""
    made = entry(
        id=id_at(ago(seconds=1)),
        api_key_id=key.id,
        project_id=key.project_id,
        organization_id=key.project.organization_id,
        cost=Decimal(cost),
        data_storage_cost=Decimal(0),
        used_mode=mode,
    )
    write(made)
    credits = -Decimal(cost) if mode == "credits" else Decimal(0)
    ledger.charge([Charge(made.organization_id, key.id, made.id, credits, Decimal(cost))])
    return made


def test_a_key_is_told_what_it_may_spend_and_has_spent(world: World) -> None:
    made = make_key(world.dana, world.project, usage_limit=Decimal(5))
    charge(made.key, "0.25")
    charge(made.key, "0.5", mode="api-keys")
    body = Caller(made.token).get("/v1/key").json()
    conforms("/v1/key", body)
    told = body["data"]
    names = ("limit", "limit_remaining", "limit_reset", "usage", "byok_usage", "is_free_tier", "include_byok_in_limit")
    assert {name: told[name] for name in names} == {
        "limit": 5,
        "limit_remaining": 4.25,
        "limit_reset": None,
        "usage": 0.25,
        "byok_usage": 0.5,
        "is_free_tier": True,
        "include_byok_in_limit": True,
    }
    assert [told[f"{kind}_{period}"] for kind in ("usage", "byok_usage") for period in ("daily", "weekly", "monthly")] \
        == [0.25, 0.25, 0.25, 0.5, 0.5, 0.5]  # fmt: skip
    assert told["label"] == made.key.masked_token
    assert made.token not in json.dumps(body)


def test_a_limit_for_a_period_is_the_one_that_starts_anew(world: World) -> None:
    made = make_key(world.dana, world.project, usage_limit=Decimal(1))
    ApiKey.objects.filter(id=made.key.id).update(period="day", period_limit=Decimal(3))
    told = Caller(made.token).get("/v1/key").json()["data"]
    assert (told["limit"], told["limit_remaining"], told["limit_reset"]) == (3, 1, "daily")
    # As the SDK reads them: every limit, and the one that is reached first.
    period, usage = told["budgets"]
    assert told["effective_budget"] == usage
    assert (period["limit_usd"], period["spend_usd"], period["reset_interval"]) == (3, 0, "daily")
    assert period["resets_at"].endswith("T00:00:00+00:00")
    assert usage == {
        "scope": "key_limit",
        "limit_usd": 1,
        "spend_usd": 0,
        "remaining_usd": 1,
        "reset_interval": None,
        "resets_at": None,
        "include_byok": True,
        "budget_id": None,
        "guardrail_id": None,
    }


def test_a_key_without_limits_has_none(world: World) -> None:
    told = Caller(make_key(world.dana, world.project).token).get("/v1/key").json()["data"]
    assert (told["limit"], told["limit_remaining"], told["rate_limit"]["requests"]) == (None, None, -1)


def test_credits_are_what_was_given_less_what_is_left(world: World) -> None:
    made = make_key(world.dana, world.project)
    ledger.grant(world.acme.id, Decimal(20), "welcome")
    charge(made.key, "0.25")
    charge(made.key, "0.5", mode="api-keys")
    body = Caller(made.token).get("/v1/credits").json()
    conforms("/v1/credits", body)
    assert body == {"data": {"total_credits": 20, "total_usage": 0.25}}


@pytest.mark.parametrize("form", ["{}", "chatcmpl-{hex}", "gen-{hex}", "msg_{hex}"])
def test_a_request_is_found_by_the_id_of_its_answer(world: World, form: str) -> None:
    made = make_key(world.dana, world.project)
    written = charge(made.key, "0.25")
    name = form.format(written.id, hex=written.id.hex)
    body = Caller(made.token).get("/v1/generation", id=name).json()
    conforms("/v1/generation", body)
    told = body["data"]
    assert (told["id"], told["total_cost"], told["usage"], told["is_byok"]) == (name, 0.25, 0.25, False)
    assert (told["model"], told["provider_name"]) == (written.used_model, written.used_provider)


def test_a_request_of_another_project_is_as_unknown_as_one_that_never_was(world: World) -> None:
    made = make_key(world.dana, world.project)
    written = charge(made.key, "0.25")
    other = Project.objects.create(name="other", organization=world.acme)
    callers = [
        Caller(make_key(world.dana, other).token),
        Caller(make_key(world.sam, world.elsewhere_project).token),
    ]
    never = new_id()
    for caller in callers:
        answers = [caller.get("/v1/generation", id=f"gen-{one.hex}") for one in (written.id, never)]
        assert [answer.status_code for answer in answers] == [404, 404]
        assert answers[0].json() == answers[1].json()
    own = Caller(made.token)
    for name in ("x", "gen-", "gen-" + "0" * 32, "é" * 40, "x" * 5_000):
        assert own.get("/v1/generation", id=name).status_code == 404, name
    assert own.get("/v1/generation").status_code == 400


@pytest.mark.parametrize("path", PATHS)
def test_only_an_api_key_in_use_is_answered(world: World, path: str) -> None:
    made = make_key(world.dana, world.project)
    session = signed_in(world.dana)
    assert [caller.get(path).status_code for caller in (Caller(), Caller("gw_dev_wrong"), session)] == [401, 401, 401]
    Project.objects.filter(id=world.project.id).update(status=Project.Status.ARCHIVED)
    assert Caller(made.token).get(path).status_code == 410
    ApiKey.objects.filter(id=made.key.id).update(status=ApiKey.Status.INACTIVE)
    assert Caller(made.token).get(path).status_code == 401


@pytest.mark.parametrize("path", ["/model/info", "/v1/model/info"])
def test_models_are_listed_as_litellm_does(world: World, path: str) -> None:
    body = Caller().get(path).json()
    conforms(path, body)
    offers = [offer for model in catalog_cache.current().models.values() for offer in model.offers]
    assert 0 < len(body["data"]) <= len(offers)
    echo = next(one for one in body["data"] if one["litellm_params"]["model"] == "sandbox/echo")
    assert (echo["model_name"], echo["model_info"]["litellm_provider"]) == ("echo", "sandbox")
    assert Caller().get(path, litellm_model_id="sandbox/echo").json() == {"data": [echo]}
    assert Caller().get(path, litellm_model_id="nobody/nothing").status_code == 404
    assert Caller("gw_dev_wrong").get(path).status_code == 401
