"""Limits on lines of batches: credits, keys, rates, providers' load, retention, and how many there may be."""

from __future__ import annotations

from decimal import Decimal
from uuid import uuid4

import openai as sdk
import pytest
from django.utils import timezone
from openai import OpenAI

from apps.batches.hooks import erase
from apps.batches.models import Batch, BatchLine, FileChunk, StoredFile
from apps.batches.work import prepare_some
from apps.billing.models import LedgerEntry
from apps.gateway.access import policy
from apps.keys.models import ApiKey
from apps.limits.actions import create_limit
from apps.logs.models import RequestLog
from apps.organizations.models import Organization, RetentionLevel
from tests.batches.batch_work import CHAT, create, line, lines_in, run, work_all
from tests.responses.conftest import Clients, keep, token_in
from tests.support.guardrails_in_force import forbid, guard
from tests.support.upstream import Caller, settle_all


def test_what_is_left_ends_in_the_middle_and_no_line_is_lost(keeper: Caller, openai: OpenAI) -> None:
    Organization.objects.filter(pk=keeper.organization_id).update(credits=Decimal("0.15"))
    # At 0.15 USD per million tokens.
    told = run(openai, [line("a", "[[sandbox usage=999990,5]]"), line("b", max_tokens=50), line("c", max_tokens=50)])
    assert told.request_counts.model_dump() == {"total": 3, "completed": 1, "failed": 2}
    assert [result["custom_id"] for result in lines_in(openai, told.output_file_id)] == ["a"]
    errors = lines_in(openai, told.error_file_id)
    assert [(error["custom_id"], error["response"]["status_code"]) for error in errors] == [("b", 402), ("c", 402)]
    assert RequestLog.objects.count() == LedgerEntry.objects.filter(kind="usage").count() == 1


def test_a_keys_budget_and_its_organizations_guardrails_hold_for_each_line(keeper: Caller, openai: OpenAI) -> None:
    guard(keeper)
    forbid(keeper, "forbidden")
    told = run(openai, [line("good"), line("bad", "a forbidden word")])
    (error,) = lines_in(openai, told.error_file_id)
    assert (error["custom_id"], error["response"]["status_code"]) == ("bad", 400)
    assert len(lines_in(openai, told.output_file_id)) == 1
    ApiKey.objects.filter(pk=keeper.key.pk).update(usage_limit=Decimal("0.000000001"))
    policy.forget_all()
    (error,) = lines_in(openai, run(openai, [line("dear")]).error_file_id)
    assert (error["response"]["status_code"], error["response"]["body"]["error"]["code"]) == (
        402,
        "usage_limit_exceeded",
    )


def test_lines_of_a_revoked_key_are_refused(keeper: Caller, openai: OpenAI, clients: Clients) -> None:
    other = clients(token_in(keeper.key.project, keeper))
    made = create(other, [line("a"), line("b")])
    ApiKey.objects.filter(pk=Batch.objects.get().api_key_id).update(status=ApiKey.Status.INACTIVE)
    policy.forget_all()
    work_all()
    told = openai.batches.retrieve(made.id)
    errors = lines_in(openai, told.error_file_id)
    assert [error["response"]["status_code"] for error in errors] == [401, 401]
    assert not RequestLog.objects.exists()


def test_a_line_that_meets_a_rate_limit_waits_and_takes_none_of_the_interactive_rate(
    keeper: Caller, openai: OpenAI
) -> None:
    ApiKey.objects.filter(pk=keeper.key.pk).update(requests_per_minute=1)
    policy.forget_all()
    made = create(openai, [line("a"), line("b")])
    work_all()
    batch = Batch.objects.get()
    assert batch.paused_until > timezone.now()
    waiting = BatchLine.objects.get(outcome="")
    assert (waiting.attempts, waiting.lease_owner, waiting.log_id) == (0, "", None)
    assert (RequestLog.objects.count(), keeper.chat().status_code) == (1, 200)
    ApiKey.objects.filter(pk=keeper.key.pk).update(requests_per_minute=None)
    policy.forget_all()
    BatchLine.objects.update(lease_until=timezone.now())
    Batch.objects.update(paused_until=timezone.now())
    work_all()
    assert openai.batches.retrieve(made.id).status == "completed"


def test_a_line_that_a_limit_refuses_for_good_fails_and_does_not_wait_for_the_end_of_the_day(
    keeper: Caller, openai: OpenAI
) -> None:
    fields = {"name": "Once", "scope": "organization", "counts": "requests", "window": "lifetime", "amount": Decimal(1)}
    create_limit(organization=keeper.key.project.organization, fields=fields)
    assert keeper.chat().status_code == 200
    settle_all()
    told = run(openai, [line("a")])
    (error,) = lines_in(openai, told.error_file_id)
    assert (error["custom_id"], error["response"]["status_code"]) == ("a", 429)
    assert error["response"]["body"]["error"]["code"] == "limit_reached"
    assert (told.status, told.request_counts.completed, told.request_counts.failed) == ("completed", 0, 1)
    assert RequestLog.objects.count() == 1


def test_a_line_that_providers_turn_away_waits_longer_each_time_and_fails_at_last(
    keeper: Caller, openai: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.gateway.upstream.failover.backoff", lambda *_: 0)
    monkeypatch.setattr("apps.batches.line_runs.MAX_TURNED_AWAY", 1)
    made = create(openai, [line("a", "[[sandbox status=429]]")])
    work_all()
    waiting = BatchLine.objects.get()
    assert (waiting.turned_away, waiting.attempts, waiting.outcome) == (1, 0, "")
    BatchLine.objects.update(lease_until=timezone.now())
    Batch.objects.update(paused_until=timezone.now())
    work_all()
    told = openai.batches.retrieve(made.id)
    (error,) = lines_in(openai, told.error_file_id)
    assert (told.status, error["response"]["status_code"]) == ("completed", 429)
    assert not LedgerEntry.objects.filter(kind="usage", usage__gt=0).exists()


def test_nothing_of_it_lies_in_clear(keeper: Caller, openai: OpenAI) -> None:
    word = uuid4().hex
    create(openai, [line(word, f"say {word}")], metadata={"word": word}, extra_headers={"x-source": word})
    assert prepare_some()
    texts = [str(value) for row in (*Batch.objects.values(), *BatchLine.objects.values()) for value in row.values()]
    texts += [
        str(value) for row in (*StoredFile.objects.values(), *FileChunk.objects.values()) for value in row.values()
    ]
    assert not any(word in text or keeper.token in text for text in texts)


def test_the_clients_tags_go_with_each_line(openai: OpenAI) -> None:
    run(openai, [line("a")], extra_headers={"x-source": "a test", "x-gateway-team": "red"})
    row = RequestLog.objects.get()
    assert row.source == "a test"
    assert row.custom_headers == {"team": "red", "batch-id": Batch.objects.get().pk}


def test_batches_of_organizations_that_keep_nothing_are_refused_and_not_worked_on(
    keeper: Caller, openai: OpenAI
) -> None:
    made = create(openai, [line("a")])
    keep(keeper, RetentionLevel.METADATA)
    with pytest.raises(sdk.BadRequestError) as refused:
        openai.batches.create(input_file_id=made.input_file_id, endpoint=CHAT, completion_window="24h")
    assert refused.value.code == "zero_data_retention"
    work_all()
    assert not RequestLog.objects.exists()
    with pytest.raises(sdk.NotFoundError):
        openai.batches.retrieve(made.id)


def test_a_whole_batch_goes_with_its_organization(keeper: Caller, openai: OpenAI) -> None:
    run(openai, [line("a")])
    create(openai, [line("b")])
    erase(keeper.organization_id)
    assert not any(kind.objects.exists() for kind in (Batch, BatchLine, StoredFile, FileChunk))
