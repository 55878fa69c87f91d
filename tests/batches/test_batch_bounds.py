"""Bounds of batches by organization: how many, with how many lines, and what pays for them; a refusal makes nothing."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import anthropic as anthropic_sdk
import openai as sdk
import pytest
from openai import OpenAI

from apps.batches import line_runs
from apps.batches.line_runs import LineJob
from apps.batches.models import Batch, BatchLine, StoredFile
from apps.batches.work import prepare_some
from apps.billing.models import LedgerEntry
from apps.gateway.access import policy
from apps.keys.models import ProviderKey
from apps.keys.secrets import encrypt_credential
from apps.logs.models import RequestLog
from apps.organizations.models import Organization, Project
from tests.batches.batch_work import CHAT, create, line, lines_in, upload, work_all
from tests.batches.test_message_batches import ask, client_of
from tests.responses.conftest import Clients, neighbour, stranger
from tests.support.upstream import Caller


def set_credits(keeper: Caller, amount: str) -> None:
    Organization.objects.filter(pk=keeper.organization_id).update(credits=Decimal(amount))


def test_a_batch_without_credits_is_refused_and_none_is_made(keeper: Caller, openai: OpenAI) -> None:
    set_credits(keeper, "0")
    with pytest.raises(sdk.APIStatusError) as refused:
        create(openai, [line("a")])
    assert (refused.value.status_code, refused.value.code) == (402, "insufficient_credits")
    assert "add credits" in refused.value.message
    assert not Batch.objects.exists()


def test_a_message_batch_without_credits_is_refused_and_its_requests_do_not_stay(keeper: Caller) -> None:
    set_credits(keeper, "0")
    with client_of(keeper.token) as client, pytest.raises(anthropic_sdk.APIStatusError) as refused:
        client.messages.batches.create(requests=[ask("a")])
    assert refused.value.status_code == 402
    assert refused.value.type == "billing_error"
    assert "The organization has no credits" in refused.value.message
    assert not any(kind.objects.exists() for kind in (Batch, StoredFile))


@pytest.mark.parametrize("mode", ["api-keys", "hybrid"])
def test_a_project_with_provider_keys_of_its_own_needs_no_credits(keeper: Caller, openai: OpenAI, mode: str) -> None:
    set_credits(keeper, "0")
    Project.objects.update(mode=mode)
    ProviderKey.objects.create(
        organization_id=keeper.organization_id,
        provider="sandbox",
        encrypted_token=encrypt_credential("sk-our-own"),
        last_four="-own",
    )
    policy.forget_all()
    assert create(openai, [line("a")]).status == "validating"


def test_a_hybrid_project_without_a_key_of_its_own_needs_credits(keeper: Caller, openai: OpenAI) -> None:
    set_credits(keeper, "0")
    Project.objects.update(mode="hybrid")
    policy.forget_all()
    with pytest.raises(sdk.APIStatusError) as refused:
        create(openai, [line("a")])
    assert refused.value.status_code == 402


def test_an_organization_has_so_many_batches_in_progress_whatever_its_projects(
    keeper: Caller, openai: OpenAI, clients: Clients, settings: Any
) -> None:
    settings.BATCHES_IN_PROGRESS = {**settings.BATCHES_IN_PROGRESS, "enterprise": 2}
    next_door = clients(neighbour(keeper))
    create(openai, [line("a")])
    create(next_door, [line("b")])
    for client in (openai, next_door):
        with pytest.raises(sdk.RateLimitError) as refused:
            create(client, [line("c")])
        assert refused.value.code == "batches_in_progress_exceeded"
        assert "2 batches in progress" in refused.value.message
        assert refused.value.response.headers["retry-after"] == "60"
    assert Batch.objects.count() == 2
    # Another organization's are its own.
    assert create(clients(stranger(keeper)), [line("d")]).status == "validating"
    work_all()
    assert create(openai, [line("e")]).status == "validating"


def test_an_organizations_batches_have_so_many_lines_together(keeper: Caller, openai: OpenAI, settings: Any) -> None:
    settings.BATCH_LINES_IN_PROGRESS = {**settings.BATCH_LINES_IN_PROGRESS, "enterprise": 5}
    create(openai, [line("a"), line("b"), line("c")])
    with pytest.raises(sdk.RateLimitError) as refused:
        create(openai, [line("d"), line("e"), line("f")])
    assert refused.value.code == "batch_lines_in_progress_exceeded"
    assert "may have 5 lines together; they have 3, and this batch has 3" in refused.value.message
    with client_of(keeper.token) as client, pytest.raises(anthropic_sdk.RateLimitError):
        client.messages.batches.create(requests=[ask("d"), ask("e"), ask("f")])
    assert (Batch.objects.count(), StoredFile.objects.filter(purpose="message_batch").count()) == (1, 0)
    assert create(openai, [line("d"), line("e")]).status == "validating"
    work_all()
    assert create(openai, [line(str(number)) for number in range(9)]).status == "validating"


def test_an_organization_whose_files_take_up_its_room_makes_no_batch(
    keeper: Caller, openai: OpenAI, settings: Any
) -> None:
    file_id = upload(openai, [line("a")])
    settings.FILE_BYTES = {**settings.FILE_BYTES, "enterprise": 1}
    with pytest.raises(sdk.BadRequestError) as refused:
        openai.batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h")
    assert refused.value.code == "storage_limit_exceeded"
    assert not Batch.objects.exists()


def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the position of each line is added that is begun."""
    seen: list[int] = []
    answer = LineJob.answer

    def note(job: LineJob) -> None:
        seen.append(job.line.position)
        answer(job)

    monkeypatch.setattr(LineJob, "answer", note)
    return seen


def refusals_in(client: OpenAI, batch_id: str) -> list[tuple[str, int, str]]:
    told = client.batches.retrieve(batch_id)
    assert told.status == "completed"
    return [
        (error["custom_id"], error["response"]["status_code"], error["response"]["body"]["error"]["code"])
        for error in lines_in(client, told.error_file_id)
    ]


def test_lines_of_credits_that_ran_out_end_together(
    keeper: Caller, openai: OpenAI, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BATCH_LINES_AT_ONCE = 1
    made = create(openai, [line(str(number)) for number in range(30)])
    set_credits(keeper, "0")
    tried = begun(monkeypatch)
    work_all()
    assert tried == [0]
    assert refusals_in(openai, made.id) == [(str(number), 402, "insufficient_credits") for number in range(30)]
    told = openai.batches.retrieve(made.id)
    assert told.request_counts is not None
    assert told.request_counts.model_dump() == {"total": 30, "completed": 0, "failed": 30}
    assert not RequestLog.objects.exists()
    assert not LedgerEntry.objects.filter(kind="usage").exists()


def test_requests_of_a_message_batch_that_credits_do_not_cover_end_together(
    keeper: Caller, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BATCH_LINES_AT_ONCE = 1
    with client_of(keeper.token) as client:
        made = client.messages.batches.create(requests=[ask(str(number)) for number in range(5)])
        set_credits(keeper, "0")
        tried = begun(monkeypatch)
        work_all()
        told = client.messages.batches.retrieve(made.id)
        assert (told.processing_status, told.request_counts.errored, tried) == ("ended", 5, [0])
        results: list[Any] = list(client.messages.batches.results(made.id))
    assert [(one.custom_id, one.result.error.error.type) for one in results] == [
        (str(number), "billing_error") for number in range(5)
    ]


def test_lines_that_what_is_left_does_not_cover_end_together_after_many_in_a_row(
    keeper: Caller, openai: OpenAI, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BATCH_LINES_AT_ONCE = 1
    monkeypatch.setattr(line_runs, "MAX_UNPAID", 3)
    made = create(openai, [line(str(number)) for number in range(20)])
    set_credits(keeper, "0.000000001")
    tried = begun(monkeypatch)
    work_all()
    assert tried == [0, 1, 2]
    assert refusals_in(openai, made.id) == [(str(number), 402, "insufficient_credits") for number in range(20)]


def test_a_line_that_is_paid_for_begins_the_count_again(
    keeper: Caller, openai: OpenAI, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BATCH_LINES_AT_ONCE = 1
    monkeypatch.setattr(line_runs, "MAX_UNPAID", 2)
    dear: dict[str, Any] = {"max_tokens": 4_000}
    set_credits(keeper, "0.0005")
    told = [line("a", **dear), line("b", max_tokens=5), line("c", **dear), line("d", max_tokens=5)]
    made = create(openai, told)
    work_all()
    batch = openai.batches.retrieve(made.id)
    assert [result["custom_id"] for result in lines_in(openai, batch.output_file_id)] == ["b", "d"]
    assert LedgerEntry.objects.filter(kind="usage").count() == 2


def test_lines_that_are_answered_while_the_others_end_keep_their_answers(
    keeper: Caller, openai: OpenAI, settings: Any
) -> None:
    # One of the two that the organization may have under way is another worker's.
    settings.BATCH_LINES_AT_ONCE = 3
    made = create(openai, [line("a"), line("b"), line("c")])
    assert prepare_some()
    BatchLine.objects.filter(position=1).update(lease_owner="another", lease_until="2100-01-01T00:00Z")
    set_credits(keeper, "0")
    work_all()
    assert list(BatchLine.objects.order_by("position").values_list("outcome", flat=True)) == ["errored", "", "unpaid"]
    assert openai.batches.retrieve(made.id).status == "in_progress"
