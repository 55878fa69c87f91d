"""Native batches: lines that a provider's own batch API answers, at its share of the price, each once."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone
from openai import OpenAI

from apps.batches.models import Batch, BatchLine, NativeJob, NativeState
from apps.batches.native import line_holds, parked_lines
from apps.billing import balances
from apps.billing.models import LedgerEntry
from apps.billing.pricing import cost_by
from apps.gateway.access import policy
from apps.kernel.valkey.redis import client as valkey
from apps.keys.models import ProviderKey
from apps.keys.secrets import encrypt_credential
from apps.logs.models import RequestLog
from apps.organizations.models import Organization, Project
from tests.batches.batch_work import create, line, lines_in, work_all
from tests.batches.native_work import (
    ANTHROPIC,
    MODELS,
    OPENAI,
    SUFFIX,
    asked,
    batch_providers,
    bill_of,
    look,
    nothing_is_held,
    run_natively,
)
from tests.batches.test_message_batches import client_of
from tests.support.upstream import Caller

__all__ = ["batch_providers"]

pytestmark = pytest.mark.usefixtures("batch_providers")


@pytest.mark.parametrize("model", MODELS)
def test_each_line_is_answered_by_the_batch_api_and_costs_its_share(keeper: Caller, openai: OpenAI, model: str) -> None:
    tag = uuid4().hex
    told = run_natively(openai, [asked(model, name, f"tag={tag}") for name in "abc"])
    assert (told.status, told.error_file_id) == ("completed", None)
    results = lines_in(openai, told.output_file_id)
    assert [result["custom_id"] for result in results] == ["a", "b", "c"]
    assert {result["response"]["body"]["object"] for result in results} == {"chat.completion"}
    assert {result["response"]["body"]["choices"][0]["message"]["content"] for result in results} == {"You said: hello"}
    assert len(keeper.sent(tag)) == 3
    rows = {row.request_id: row for row in RequestLog.objects.all()}
    assert set(rows) == {result["id"] for result in results}
    direct = Decimal(str(keeper.chat(f"hello [[sandbox tag={tag}]]", model=model).json()["usage"]["cost_usd_total"]))
    for result in results:
        row = rows[result["id"]]
        bill = bill_of(row)
        assert (bill.batch_share, bill.input, bill.output) == (Decimal("0.5"), Decimal("0.075"), Decimal("0.3"))
        assert row.cost == cost_by(bill).total == direct / 2 > 0
        assert Decimal(str(result["response"]["body"]["usage"]["cost_usd_total"])) == row.cost
    usage = LedgerEntry.objects.filter(kind="usage", reference__in=[row.id for row in rows.values()])
    assert sorted(-entry.credits for entry in usage) == sorted(row.cost for row in rows.values())
    work_all()
    assert nothing_is_held(keeper)


def test_a_line_names_the_deployment_for_batches(keeper: Caller, openai: OpenAI) -> None:
    told = run_natively(openai, [asked("deployments/echo-batch", "a", temperature=0.25)])
    (result,) = lines_in(openai, told.output_file_id)
    assert result["response"]["body"]["model"] == "echo-batch"
    (sent,) = keeper.sent(SUFFIX.partition("=")[2])
    # The catalog's name of the sandbox's model, with the ending.
    assert (sent["body"]["model"], sent["body"]["temperature"]) == (f"echo:tag=echo-batch{SUFFIX}", 0.25)
    row = RequestLog.objects.get()
    assert (row.used_model, bill_of(row).batch_share) == ("echo-batch", Decimal("0.5"))
    assert nothing_is_held(keeper)


def test_what_lines_may_cost_is_held_while_they_are_at_the_provider(keeper: Caller, openai: OpenAI) -> None:
    create(openai, [asked(OPENAI, "a", "batch=running", max_tokens=100)])
    work_all()
    (held,) = LedgerEntry.objects.filter(kind="hold")
    parked, job = BatchLine.objects.get(), NativeJob.objects.get()
    assert (held.reference, parked.native_state, job.status, job.lines) == (parked.log_id, "parked", "running", 1)
    assert Organization.objects.get(pk=keeper.organization_id).credits == 100 + held.credits < 100
    assert valkey().hget(balances.key("organization", keeper.organization_id), "held") == "0"


def test_a_line_that_credits_do_not_cover_is_refused_and_never_handed_over(keeper: Caller, openai: OpenAI) -> None:
    Organization.objects.filter(pk=keeper.organization_id).update(credits="0.000001")
    told = run_natively(openai, [asked(OPENAI, "a", max_tokens=100)])
    (error,) = lines_in(openai, told.error_file_id)
    assert error["response"]["status_code"] == 402
    assert (NativeJob.objects.count(), LedgerEntry.objects.filter(kind="hold").count()) == (0, 0)


@pytest.mark.parametrize("model", MODELS)
def test_lines_that_the_batch_api_does_not_answer_are_run_as_others_are(
    keeper: Caller, openai: OpenAI, model: str
) -> None:
    words = ["missing", "garbage", "stray", "expired"]
    told = run_natively(openai, [asked(model, "good"), *(asked(model, word, f"batch={word}") for word in words)])
    results = {result["custom_id"]: result for result in lines_in(openai, told.output_file_id)}
    assert (told.status, list(results)) == ("completed", ["good", *words])
    shares = {row.request_id: bill_of(row).batch_share for row in RequestLog.objects.all()}
    assert {custom_id: shares[result["id"]] for custom_id, result in results.items()} == {
        "good": Decimal("0.5"),
        **dict.fromkeys(words),
    }
    assert nothing_is_held(keeper)


def test_lines_of_a_job_that_the_provider_refuses_are_run_as_others_are(keeper: Caller, openai: OpenAI) -> None:
    told = run_natively(openai, [asked(OPENAI, "a"), asked(OPENAI, "b", "batch=refused")])
    assert (told.status, told.request_counts.completed) == ("completed", 2)
    assert {bill_of(row).batch_share for row in RequestLog.objects.all()} == {None}
    assert nothing_is_held(keeper)


def test_an_answer_that_comes_twice_counts_once(keeper: Caller, openai: OpenAI) -> None:
    told = run_natively(openai, [asked(model, model, "batch=twice") for model in MODELS])
    for result in lines_in(openai, told.output_file_id):
        assert result["response"]["body"]["choices"][0]["message"]["content"] == "You said: hello"
    assert RequestLog.objects.count() == LedgerEntry.objects.filter(kind="usage").count() == len(MODELS)
    assert nothing_is_held(keeper)


def test_an_error_of_a_line_is_its_result_and_free(keeper: Caller, openai: OpenAI) -> None:
    told = run_natively(openai, [asked(model, model, "status=400") for model in MODELS])
    for error, model in zip(lines_in(openai, told.error_file_id), MODELS, strict=True):
        assert (error["custom_id"], error["response"]["status_code"]) == (model, 400)
        assert error["response"]["body"]["error"]["message"] == "The request is invalid."
        row = RequestLog.objects.get(request_id=error["id"])
        assert (row.cost, row.status_code, row.used_provider) == (0, 400, model.partition("/")[0])
    assert nothing_is_held(keeper)


def test_a_line_that_failed_there_for_a_passing_cause_runs_as_a_request(keeper: Caller, openai: OpenAI) -> None:
    causes = [(model, status) for model in MODELS for status in (429, 500)]
    lines = [
        asked(model, f"{model} {status}", f"status={status}:times=1:tag={uuid4().hex}") for model, status in causes
    ]
    told = run_natively(openai, lines)
    assert (told.status, told.request_counts.completed) == ("completed", len(causes))
    rows = [(row.status_code, bill_of(row).batch_share) for row in RequestLog.objects.all()]
    assert rows == [(200, None)] * len(causes)
    assert nothing_is_held(keeper)


def test_an_answer_for_a_key_that_was_revoked_is_refused_and_billed(keeper: Caller, openai: OpenAI) -> None:
    create(openai, [asked(OPENAI, "a")])
    look()
    keeper.key.status = "deleted"
    keeper.key.save()
    policy.forget_all()
    for _ in range(2):
        look()
    row = RequestLog.objects.get()
    bill = bill_of(row)
    assert (row.status_code, row.has_error, bill.batch_share) == (401, True, Decimal("0.5"))
    assert row.cost == cost_by(bill).total > 0
    batch = Batch.objects.get()
    assert (batch.status, batch.errored) == ("completed", 1)
    assert nothing_is_held(keeper)


def test_lines_of_other_endpoints_and_models_run_beside_those_that_are_handed_over(
    keeper: Caller, openai: OpenAI, settings: Any
) -> None:
    told = run_natively(openai, [asked(OPENAI, "a"), line("b"), asked(OPENAI, "c", n=2)])
    assert (told.status, told.request_counts.completed) == ("completed", 3)
    assert NativeJob.objects.get().lines == 1
    settings.NATIVE_BATCHES = False
    told = run_natively(openai, [asked(OPENAI, "a")])
    assert (told.status, NativeJob.objects.count()) == ("completed", 1)


def test_a_job_takes_no_more_than_its_bound_and_lines_of_one_model(
    openai: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parked_lines, "MAX_JOB_LINES", 2)
    create(openai, [asked(OPENAI, name) for name in "abc"] + [asked(ANTHROPIC, "d")])
    work_all()
    assert sorted(NativeJob.objects.values_list("format", "lines")) == [("anthropic", 1), ("openai", 1), ("openai", 2)]
    assert set(BatchLine.objects.values_list("native_state", flat=True)) == {NativeState.PARKED}


def test_a_message_batch_is_answered_by_the_batch_api_too(keeper: Caller) -> None:
    with client_of(keeper.token) as client:
        params = {"model": OPENAI, "max_tokens": 20, "messages": [{"role": "user", "content": "hello"}]}
        made = client.messages.batches.create(requests=[{"custom_id": "a", "params": params}])  # type: ignore[typeddict-item] # plain values
        for _ in range(2):
            look()
        (result,) = client.messages.batches.results(made.id)
    assert (result.custom_id, result.result.type) == ("a", "succeeded")
    assert result.result.message.content[0].text == "You said: hello"
    row = RequestLog.objects.get()
    assert (row.cost, bill_of(row).batch_share) == (cost_by(bill_of(row)).total, Decimal("0.5"))
    assert nothing_is_held(keeper)


def test_what_was_held_for_a_batch_that_is_gone_is_given_back(keeper: Caller, openai: OpenAI) -> None:
    create(openai, [asked(OPENAI, "a", "batch=running", max_tokens=100)])
    work_all()
    Batch.objects.all().delete()
    assert line_holds.give_back_forgotten(timezone.now() + timedelta(days=3)) == 0
    assert line_holds.give_back_forgotten(timezone.now() + timedelta(days=5)) == 1
    assert line_holds.give_back_forgotten(timezone.now() + timedelta(days=5)) == 0
    assert nothing_is_held(keeper)


def test_an_organizations_own_key_is_used_where_the_project_says_so(keeper: Caller, openai: OpenAI) -> None:
    Project.objects.update(mode="api-keys")
    own = ProviderKey.objects.create(
        organization_id=keeper.organization_id,
        provider="sandbox",
        encrypted_token=encrypt_credential("sk-our-own"),
        last_four="-own",
    ).id
    policy.forget_all()
    told = run_natively(openai, [asked(OPENAI, "a")])
    job, row = NativeJob.objects.get(), RequestLog.objects.get()
    assert (told.status, job.is_own_key, job.credential) == ("completed", True, str(own))
    assert (row.used_mode, row.provider_key_id, bill_of(row).batch_share) == ("api-keys", own, Decimal("0.5"))
    assert LedgerEntry.objects.filter(kind="hold").count() == 0
