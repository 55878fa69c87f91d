"""Bodies that are too much to be read, of every route: the refusal names the excess, and nothing is done."""

from __future__ import annotations

import gc
import json
import weakref
from functools import partial
from threading import Event, get_ident
from typing import Any
from uuid import uuid4

import gevent
import pytest

from apps.catalog.models import ModelProvider
from apps.gateway.admission import byte_budget
from apps.gateway.canonical.chat import MAX_DROPPED_FIELDS, Target
from apps.gateway.dialects.chat.openai.client import read_request
from apps.kernel.concurrency import native_thread_pool
from apps.kernel.errors import InvalidRequest, Overloaded
from apps.kernel.valkey import generation
from tests.support.guardrails_in_force import forbid, guard
from tests.support.upstream import Caller, nothing_happened, settle_all

pytestmark = pytest.mark.django_db

TERM = "xylophonist"
ROUTES = {
    "chat": "/v1/chat/completions",
    "explain": "/v1/route/explain",
    "messages": "/v1/messages",
    "count": "/v1/messages/count_tokens",
    "generations": "/v1/images/generations",
    "edits": "/v1/images/edits",
}
USUAL = b'"model":"sandbox/echo","max_tokens":9,"messages":[{"role":"user","content":"hi"}],"prompt":"hi"'
TOO_MUCH = {
    "values": (b'"zz":[' + b'{"a":1.5},' * 120_000 + b"1]", "The request body holds more than 200000 values"),
    "keys": (
        b'"metadata":{' + b",".join(b'"k%d":1' % number for number in range(210_000)) + b"}",
        "The request body holds more than 200000 values",
    ),
    "depth": (b'"zz":' + b"[" * 40_000 + b"]" * 40_000, "The request body is nested too deeply: more than 128 levels"),
    "name": (b'"' + b"n" * 70_000 + b'":1', "The request body holds a name longer than 65536 bytes"),
    "digits": (b'"zz":1.' + b"1" * 70_000, "The request body holds a number longer than 65536 characters"),
}


def post(caller: Caller, path: str, body: bytes) -> Any:
    """Send a body as it is."""
    headers = {"Authorization": f"Bearer {caller.token}"}
    return caller.client.post(path, body, content_type="application/json", headers=headers)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_body_that_passes_a_bound_is_refused_and_nothing_is_done(caller: Caller, route: str, name: str) -> None:
    field, words = TOO_MUCH[name]
    answer = post(caller, ROUTES[route], b"{%b,%b}" % (USUAL, field))
    told = answer.json()
    assert (answer.status_code, told["message"]) == (400, words)
    assert told["error"]["type"] == "invalid_request_error"
    if route not in {"messages", "count"}:
        assert told["error"] == {
            "message": words,
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_json",
        }
    assert nothing_happened(caller)
    assert settle_all() == 0


@pytest.mark.parametrize("route", ["chat", "messages"])
def test_text_that_no_model_reads_is_refused_by_its_length(caller: Caller, route: str) -> None:
    body = b'{"model":"sandbox/echo","max_tokens":9,"messages":[{"role":"user","content":"%b"}]}' % (
        "\U0001f600".encode() * 6_000_000
    )
    answer = post(caller, ROUTES[route], body)
    words = "The request body holds more than 20971520 bytes of text, which is more than any model reads"
    if route == "messages":
        # The phrase on which Claude Code shortens a conversation.
        words = f"prompt is too long: {words}"
    assert (answer.status_code, answer.json()["message"]) == (400, words)
    if route == "chat":
        assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert nothing_happened(caller)


@pytest.mark.parametrize(
    ("route", "name", "said"),
    [
        ("chat", "zz", "zz: "),
        ("chat", "metadata", "metadata: "),
        ("messages", "zz", "Invalid request format: zz: "),
        ("generations", "zz", "Invalid request parameters: zz: "),
        ("explain", "zz", "zz: "),
    ],
)
def test_a_field_beside_the_conversation_holds_few_values(caller: Caller, route: str, name: str, said: str) -> None:
    rest = b"[%b1]" % (b"{}," * 10_000) if name == "zz" else json.dumps(dict.fromkeys(map(str, range(10_001)))).encode()
    answer = post(caller, ROUTES[route], b'{%b,"%b":%b}' % (USUAL, name.encode(), rest))
    words = f"{said}holds too many values: at most 10000 may stand beside the conversation"
    assert (answer.status_code, answer.json()["message"]) == (400, words)
    if route != "messages":
        assert (answer.json()["error"]["code"], answer.json()["error"]["param"]) == ("invalid_parameters", name)
    assert nothing_happened(caller)


def test_a_long_conversation_is_no_flood(caller: Caller) -> None:
    tag = uuid4().hex
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}] * 9} for _ in range(2_000)]
    answer = caller.chat(f"hi [[sandbox tag={tag}]]")
    assert answer.status_code == 200
    body = {"model": "sandbox/echo", "messages": [*messages, {"role": "user", "content": f"[[sandbox tag={tag}]]"}]}
    assert post(caller, ROUTES["chat"], json.dumps(body).encode()).status_code == 200
    assert len(caller.sent(tag)) == 2


def test_a_large_body_is_read_beside_the_event_loop(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    read = read_request.fields.read_json

    def read_and_tell(body: bytes) -> Any:
        threads.append(get_ident())
        return read(body)

    monkeypatch.setattr(read_request.fields, "read_json", read_and_tell)
    for size, elsewhere in ((1_000, False), (300_000, True)):
        assert caller.chat("a " * (size // 2)).status_code == 200
        assert (threads[-1] != get_ident()) is elsewhere


def test_what_fails_on_a_thread_is_answered_as_elsewhere(caller: Caller) -> None:
    answer = post(caller, ROUTES["chat"], b'{"model":"sandbox/echo","messages":[],"zz":"%b"}' % (b"a" * 300_000))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")


def test_who_waits_too_long_for_a_thread_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_thread_pool, "PATIENCE", 0.05)
    held = Event()
    slow = [gevent.spawn(native_thread_pool.offload, native_thread_pool.LARGE, held.wait) for _ in range(2)]
    gevent.sleep(0)
    with pytest.raises(Overloaded) as refused:
        native_thread_pool.offload(native_thread_pool.LARGE, lambda: None)
    assert refused.value.retry_after == 2
    assert native_thread_pool.offload(native_thread_pool.LARGE - 1, lambda: "small") == "small"
    held.set()
    gevent.joinall(slow)


class TestGuarded:
    """Texts that guardrails look at, with those that are JSON inside of other texts."""

    @staticmethod
    def with_arguments(arguments: str, copies: int = 1) -> list[dict[str, Any]]:
        function = {"name": "f", "arguments": arguments}
        calls = [{"id": f"c{number}", "type": "function", "function": function} for number in range(copies)]
        results = [{"role": "tool", "tool_call_id": f"c{number}", "content": "x"} for number in range(copies)]
        return [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": calls}, *results]

    def test_json_within_a_text_is_bounded(self, caller: Caller) -> None:
        guard(caller)
        forbid(caller, TERM)
        answer = caller.chat(messages=self.with_arguments("[" + "1," * 200_000 + "1]"))
        words = "messages[1].tool_calls[0].function.arguments: the JSON holds more than 200000 values"
        assert (answer.status_code, answer.json()["message"]) == (400, words)
        assert answer.json()["error"]["param"] == "messages"

    def test_many_texts_hold_no_more_json_than_one(self, caller: Caller) -> None:
        guard(caller)
        forbid(caller, TERM)
        ModelProvider.objects.filter(model_id="echo").update(context_length=1_000_000)
        generation.bump(generation.CATALOG)
        answer = caller.chat(messages=self.with_arguments("[" + "1," * 100_000 + "1]", copies=4))
        assert answer.status_code == 400
        assert answer.json()["message"].endswith("are more than 300000, which is as many as guardrails look at")

    def test_a_large_text_is_masked_on_the_thread_as_elsewhere(self, caller: Caller) -> None:
        guard(caller)
        forbid(caller, TERM, action="redact")
        tag = uuid4().hex
        assert caller.chat("a b " * 100_000 + f"{TERM} [[sandbox tag={tag}]]").status_code == 200
        (sent,) = caller.sent(tag)
        assert TERM not in str(sent)
        assert "a b a b" in str(sent)


class TestBudget:
    """Bytes under way, of one organization and of all."""

    LARGE = "a " * 200_000

    def test_an_organization_that_holds_too_many_bytes_waits(self, caller: Caller, settings: Any) -> None:
        settings.ORGANIZATION_BYTES_IN_FLIGHT = 500_000
        other = byte_budget.ByteReservation(caller.organization_id)
        other.reserve(300_000)
        answer = caller.chat(self.LARGE)
        size = len(json.dumps({"model": "sandbox/echo", "messages": [{"role": "user", "content": self.LARGE}]}))
        words = (
            f"Requests and answers of 300000 bytes are under way for this organization; with {size} more it would be"
            " more than 500000: send fewer large requests at once"
        )
        assert (answer.status_code, answer.json()["message"]) == (429, words)
        assert (answer.json()["error"]["code"], answer["retry-after"]) == ("bytes_in_flight_exceeded", "2")
        assert nothing_happened(caller)
        assert caller.chat("small").status_code == 200
        other.release()
        assert caller.chat(self.LARGE).status_code == 200
        assert byte_budget._held == {}

    def test_a_worker_that_holds_too_many_bytes_is_busy(self, caller: Caller, settings: Any) -> None:
        settings.WORKER_BYTES_IN_FLIGHT = 500_000
        other = byte_budget.ByteReservation(uuid4())
        other.reserve(300_000)
        answer = caller.chat(self.LARGE)
        words = "Too many large requests are under way; try again shortly"
        assert (answer.status_code, answer.json()["message"], answer["retry-after"]) == (503, words, "2")
        assert nothing_happened(caller)
        other.release()

    def test_one_that_is_alone_is_let_in_however_large(self, caller: Caller, settings: Any) -> None:
        settings.ORGANIZATION_BYTES_IN_FLIGHT = settings.WORKER_BYTES_IN_FLIGHT = 1024
        assert caller.chat(self.LARGE).status_code == 200

    def test_a_stream_holds_its_bytes_to_its_end(self, caller: Caller) -> None:
        answer = caller.chat(self.LARGE, stream=True)
        assert byte_budget._held[caller.organization_id] > len(self.LARGE)
        b"".join(answer.streaming_content)
        answer.close()
        assert byte_budget._held == {}

    @pytest.mark.parametrize("body", [b"[", b'{"model":"sandbox/echo","messages":[]}'])
    def test_what_is_refused_holds_nothing(self, caller: Caller, body: bytes) -> None:
        assert post(caller, ROUTES["chat"], body + b" " * 300_000).status_code == 400
        assert byte_budget._held == {}

    def test_answers_far_beyond_the_budget_are_given_up(self, settings: Any) -> None:
        settings.ORGANIZATION_BYTES_IN_FLIGHT = 1_000
        organization = uuid4()
        first, hold = byte_budget.ByteReservation(organization), byte_budget.ByteReservation(organization)
        first.reserve_for_answer(5_000)
        first.release()
        first.reserve_for_answer(1_000)
        hold.reserve_for_answer(1_000)
        with pytest.raises(Overloaded, match="Too many large answers are under way"):
            hold.reserve_for_answer(1)
        first.release()
        hold.release()
        hold.release()
        assert byte_budget._held == {}

    def test_a_hold_that_nobody_releases_ends_with_its_request(self) -> None:
        hold = byte_budget.ByteReservation(uuid4())
        hold.reserve(5)
        del hold
        assert byte_budget._held == {}


def test_very_many_losses_are_told_in_part() -> None:
    target = Target(model_name="m", facts={})
    for number in range(20_000):
        target.note_dropped(f"field{number}", "unknown")
    assert len(target.dropped_fields) == MAX_DROPPED_FIELDS


class Watched:
    """An object that the work on a body holds, and that a test can watch."""


def test_work_that_fails_on_a_thread_leaves_nothing_behind() -> None:
    watched = Watched()
    gone = weakref.ref(watched)

    def work(held: Watched) -> None:
        raise InvalidRequest(f"no {type(held).__name__}")

    gc.disable()
    try:
        assert _refused(partial(work, watched)) == "no Watched"
        del watched
        # The thread lets go of its last work as it waits for the next.
        native_thread_pool.offload(native_thread_pool.LARGE, lambda: None)
        native_thread_pool.offload(native_thread_pool.LARGE, lambda: None)
        assert gone() is None
    finally:
        gc.enable()


def _refused(work: Any) -> str:
    try:
        native_thread_pool.offload(native_thread_pool.LARGE, work)
    except InvalidRequest as error:
        return error.message
    return ""
