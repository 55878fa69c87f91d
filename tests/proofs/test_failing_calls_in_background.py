"""Each call fails once while no client waits for it: lines of batches, background responses, and loops of tools.

Unfinished work is taken up again after its lease, as in production.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from typing import Any

import openai as sdk
import pytest
from django.db import DatabaseError, InterfaceError
from django.utils import timezone
from openai import OpenAI
from redis.exceptions import RedisError

from apps.batches import line_runs
from apps.batches.models import Batch, BatchLine, BatchStatus, LineOutcome
from apps.batches.work import work
from apps.kernel.errors import Overloaded
from apps.mcp_servers.models import McpServer
from apps.responses import background
from apps.responses.models import BackgroundRun
from tests.batches.batch_work import create, line, lines_in
from tests.gateway.server_tools.conftest import tickets
from tests.proofs.failing_calls import (
    Gateway,
    WrongAnswer,
    fail_each_call,
    gateway,
    sampled_or_each,
    table,
    whole_answer,
)
from tests.proofs.fault_injection import Target, injectable
from tests.proofs.invariants import Answer
from tests.responses.conftest import clients, keeper, openai
from tests.stack.product import eventually
from tests.support.mcp_stand_in import StandIn, _mcp_server, mcp_server
from tests.support.responses_calls import ask
from tests.support.upstream import caller, sandbox_url

__all__ = [
    "_mcp_server",
    "caller",
    "clients",
    "gateway",
    "injectable",
    "keeper",
    "mcp_server",
    "openai",
    "sandbox_url",
    "table",
    "tickets",
]

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.single_server,
    pytest.mark.timeout(3600),
]
MODEL = "sandbox/echo"
EVERYWHERE = [Target.VALKEY, Target.POSTGRES, Target.UPSTREAM]


class BatchOfOneLine:
    """A batch of one line: created, worked on, and read once it is over."""

    def __init__(self, gateway: Gateway, client: OpenAI) -> None:
        self._gateway, self._client = gateway, client
        gateway.take_over = self.finish

    def create(self) -> None:
        """Upload and create the batch."""
        self.id = create(self._client, [line("a", max_tokens=20)]).id

    def work(self, _: str) -> Sequence[Answer]:
        """Work on it as far as it goes."""
        with suppress(RedisError, DatabaseError, InterfaceError):
            work(5)
        return ()

    def finish(self) -> None:
        """Work on it after leases and pauses have ended, until it is over, and keep its result."""
        line_runs.JOBS.clear()
        # Without a catalog lines are put off for a second.
        eventually(self._is_over)
        batch = self._client.batches.retrieve(self.id)
        files = (batch.output_file_id, batch.error_file_id)
        [result] = [one for file in files for one in lines_in(self._client, file)]
        response = result["response"]
        answer = Answer(response["request_id"], refused=True)
        if response["status_code"] == 200:
            answer = answer._replace(cost=Decimal(str(response["body"]["usage"]["cost_usd_total"])), refused=False)
        self._gateway.answers.append(answer)

    def _is_over(self) -> bool:
        BatchLine.objects.filter(outcome=LineOutcome.OPEN).update(lease_until=timezone.now())
        Batch.objects.update(paused_until=timezone.now())
        work(5)
        return Batch.objects.get(pk=self.id).status == BatchStatus.COMPLETED


@sampled_or_each
@pytest.mark.parametrize("target", EVERYWHERE)
def test_a_batch_line_with_a_call_that_fails(
    gateway: Gateway, openai: OpenAI, target: Target, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_runs, "_PAUSE", 0.01)
    batch = BatchOfOneLine(gateway, openai)
    tally = fail_each_call(gateway, "batch line", batch.work, target, prepare=batch.create, step=step)
    assert tally.problems == []


class BackgroundResponse:
    """A background response: begun, and read once it is over."""

    def __init__(self, gateway: Gateway, client: OpenAI) -> None:
        self._gateway, self._client = gateway, client
        self._open: tuple[str, str] | None = None
        gateway.take_over = self.finish

    def begin(self, request: str) -> Sequence[Answer]:
        """Begin it; a refusal is its answer."""
        try:
            made = self._client.responses.create(
                model=MODEL,
                input="hello",
                background=True,
                max_output_tokens=20,
                extra_headers={"x-request-id": request},
            )
        except sdk.APIStatusError as error:
            # Where the database's answer is lost, it is unknown whether the response was begun: it may go on.
            is_known = error.status_code != 503
            return [whole_answer(request, error.status_code, error.response.content, is_error_free=is_known)]
        self._open = request, made.id
        return ()

    def finish(self) -> None:
        """Have it taken over after its lease has ended, until it is over, and keep its answer."""
        background.JOBS.clear()
        for _ in range(4):
            BackgroundRun.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
            with suppress(Overloaded):
                background.take_over()
        if self._open is None:
            return
        (request, response_id), self._open = self._open, None
        done: Any = self._client.responses.retrieve(response_id)
        if done.status not in {"completed", "failed"}:
            raise WrongAnswer(f"the response is {done.status}")
        answer = Answer(request, refused=True)
        if done.status == "completed":
            answer = Answer(request, Decimal(str(done.usage.to_dict()["cost_usd_total"])))
        self._gateway.answers.append(answer)


@sampled_or_each
@pytest.mark.parametrize("target", EVERYWHERE)
def test_a_background_response_with_a_call_that_fails(
    gateway: Gateway, openai: OpenAI, target: Target, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_PAUSE", 0.01)
    response = BackgroundResponse(gateway, openai)
    tally = fail_each_call(gateway, "background response", response.begin, target, step=step)
    assert tally.problems == []


@sampled_or_each
@pytest.mark.parametrize("target", EVERYWHERE)
def test_a_loop_of_tools_with_a_call_that_fails(
    gateway: Gateway, mcp_server: StandIn, tickets: McpServer, target: Target, step: int
) -> None:
    server = {"type": "mcp", "server_label": "tickets", "require_approval": "never"}

    def loop(request: str) -> Sequence[Answer]:
        given = 'tickets__echo({"words": "hi"})'
        fields = {"model": MODEL, "tools": [server], "max_output_tokens": 50}
        response = ask(gateway.caller, given, {"x-request-id": request}, **fields)
        # A turn before the one that fails is paid for.
        return [whole_answer(request, response.status_code, response.content, rows=None, is_error_free=False)]

    tally = fail_each_call(gateway, "loop of tools", loop, target, step=step)
    assert tally.problems == []
