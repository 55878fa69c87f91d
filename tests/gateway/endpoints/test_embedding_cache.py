"""The embedding cache: each input is asked for once for a project, and those alone are paid that were asked for."""

from __future__ import annotations

from decimal import Decimal
from itertools import chain
from typing import Any
from uuid import uuid4

import pytest

from apps.gateway import response_cache
from apps.gateway.access import policy
from apps.kernel.valkey.redis import cache_client
from apps.logs.models import RequestLog
from apps.organizations.models import Organization, Project
from apps.sandbox.generated_media import in_base64, vector_of
from tests.api.test_embeddings import embed, tagged
from tests.support.sandbox_providers import clock as clock
from tests.support.upstream import Caller, settle_all

PRICE = Decimal("0.000000037")


@pytest.fixture
def caching(caller: Caller) -> Caller:
    """A caller whose project keeps answers for a minute."""
    Project.objects.filter(pk=caller.key.project_id).update(caching_enabled=True, cache_duration_seconds=60)
    Organization.objects.update(retention_level="retain")
    policy.forget_all()
    return caller


def vectors(response: Any) -> list[tuple[float, ...]]:
    return [tuple(one["embedding"]) for one in response.json()["data"]]


def asked(caller: Caller, tag: str) -> list[Any]:
    """Return the inputs of each call of the provider."""
    return [one["body"]["input"] for one in caller.sent(tag)]


def test_only_missing_inputs_are_asked_for_and_paid_and_joined_in_order(caching: Caller) -> None:
    tag = tagged()
    one, two, three, four = (f"{word} {uuid4().hex}" for word in ("ant", "bee", "cow", "doe"))
    first, second = embed(caching, [two, four]), embed(caching, [one, two, three, four])
    assert [answer["x-gateway-cache"] for answer in (first, second)] == ["miss", "partial"]
    assert vectors(second) == [vector_of(text, 8) for text in (one, two, three, four)]
    assert [item["index"] for item in second.json()["data"]] == [0, 1, 2, 3]
    assert asked(caching, tag) == [[two, four], [one, three]]
    # 36 characters each: nine tokens.
    assert second.json()["usage"] == {"prompt_tokens": 18, "total_tokens": 18}
    assert second.json()["metadata"]["cached_inputs"] == 2
    third = embed(caching, [four, three])
    assert (third["x-gateway-cache"], vectors(third)) == ("hit", [vector_of(text, 8) for text in (four, three)])
    assert settle_all() == 3
    rows = list(RequestLog.objects.order_by("created_at"))
    assert [(row.cached, row.prompt_tokens, row.cost) for row in rows] == [
        (False, 18, 18 * PRICE),
        (False, 18, 18 * PRICE),
        (True, 18, Decimal(0)),
    ]
    assert [row.routing_metadata.get("cached_inputs") for row in rows] == [None, 2, 2]
    assert [row.estimated_cost for row in rows] == [False, False, False]


def test_tokens_and_split_calls_are_kept_input_by_input_as_well(caching: Caller) -> None:
    tag = tagged()
    embed(caching, [[1, 2], [3]])
    answer = embed(caching, [[number] for number in range(2, 10)])
    assert (answer["x-gateway-cache"], len(answer.json()["data"])) == ("partial", 8)
    assert asked(caching, tag)[0] == [[1, 2], [3]]
    assert sorted(chain.from_iterable(asked(caching, tag)[1:])) == [[2], *([number] for number in range(4, 10))]


def test_any_difference_in_what_vectors_are_to_be_is_another_question(caching: Caller) -> None:
    tag, text = tagged(), uuid4().hex
    for fields in ({}, {"dimensions": 4}, {"input_type": "query"}, {"encoding_format": "base64"}):
        assert embed(caching, [text], **fields)["x-gateway-cache"] == "miss"
    again = embed(caching, [text, text], encoding_format="base64", user="another")
    assert (again["x-gateway-cache"], len(asked(caching, tag))) == ("hit", 4)
    assert [one["embedding"] for one in again.json()["data"]] == [in_base64(vector_of(text, 8))] * 2


def test_what_is_kept_is_encrypted_bounded_and_gone_in_time(caching: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    text = uuid4().hex
    embed(caching, [text, "b"], encoding_format="base64")
    keys = cache_client().keys("*:answer:*")
    assert len(keys) == 2
    assert all(58 <= cache_client().ttl(key) <= 60 for key in keys)
    kept = " ".join([*keys, *(str(cache_client().get(key)) for key in keys)])
    assert text not in kept
    assert in_base64(vector_of(text, 8)) not in kept
    monkeypatch.setattr(response_cache, "MAX_BYTES", 10)
    assert embed(caching, ["c"])["x-gateway-cache"] == "miss"
    assert len(cache_client().keys("*:answer:*")) == 2
    # A spoilt entry, or that of another input, is asked for again.
    cache_client().set(keys[0], str(cache_client().get(keys[1])))
    monkeypatch.undo()
    again = embed(caching, [text, "b"], encoding_format="base64")
    assert (again["x-gateway-cache"], again.json()["metadata"]["cached_inputs"]) == ("partial", 1)
    assert [one["embedding"] for one in again.json()["data"]] == [in_base64(vector_of(one, 8)) for one in (text, "b")]


def test_another_project_never_gets_a_vector(caching: Caller) -> None:
    tag, text = tagged(), uuid4().hex
    embed(caching, [text])
    caching.key.project = Project.objects.create(
        organization_id=caching.organization_id, name="Other", caching_enabled=True, cache_duration_seconds=60
    )
    caching.key.save()
    policy.forget_all()
    assert embed(caching, [text, "b"])["x-gateway-cache"] == "miss"
    assert len(asked(caching, tag)) == 2


def test_vectors_of_two_models_are_never_joined(caching: Caller) -> None:
    tag, text = tagged(), uuid4().hex
    others = {"models": ["embedder-fast"]}
    # Where another model may answer, missing entries are asked for with all the others.
    told = [embed(caching, inputs, **others)["x-gateway-cache"] for inputs in ([text], [text, "b"], ["b", text])]
    assert (told, asked(caching, tag)) == (["miss", "miss", "hit"], [[text], [text, "b"]])


def test_what_nobody_counted_is_estimated_for_what_was_asked_alone(caching: Caller) -> None:
    text = f"{'word ' * 100}{uuid4().hex}"
    embed(caching, [text])
    embed(caching, [text, "a cat [[sandbox no-usage]]"])
    settle_all()
    last = RequestLog.objects.order_by("created_at").last()
    assert last is not None
    assert (last.estimated_cost, last.prompt_tokens < 30) == (True, True)


def test_a_failure_keeps_nothing_and_charges_nothing(caching: Caller, clock: Any) -> None:
    text = uuid4().hex
    embed(caching, [text])
    failed = embed(caching, [text, "b [[sandbox status=503]]"])
    assert failed.status_code == 503
    assert len(cache_client().keys("*:answer:*")) == 1
    settle_all()
    last = RequestLog.objects.order_by("created_at").last()
    assert last is not None
    assert last.cost == 0


def test_shares_of_tokens_add_up() -> None:
    assert response_cache._shares(10, [1, 1, 1]) == [3, 3, 4]
    assert response_cache._shares(0, [5, 2]) == [0, 0]
    assert sum(response_cache._shares(1_234_567, [7, 1, 3, 11])) == 1_234_567
