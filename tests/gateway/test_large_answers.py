"""Large answers: the work on a whole answer is done beside the event loop, and a paid answer is never refused."""

from __future__ import annotations

from dataclasses import replace
from threading import Event, get_ident
from typing import Any

import gevent
import pytest

from apps.gateway import response_cache
from apps.gateway.access import policy
from apps.gateway.dialects.chat.openai import CLIENT
from apps.gateway.endpoints import chat_completions
from apps.gateway.settlement import record
from apps.kernel.concurrency import native_thread_pool
from apps.kernel.errors import Overloaded
from apps.logs.models import RequestLog
from apps.organizations.models import Organization, Project
from tests.support.upstream import Caller, settle_all

pytestmark = pytest.mark.django_db

# As much as the sandbox's models write, and the size from which work leaves the loop here.
LARGE_KB, LARGE = 60, 32 * 1024


@pytest.fixture
def keeping(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """A caller whose organization retains content and whose project keeps answers."""
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="retain")
    Project.objects.filter(pk=caller.key.project_id).update(caching_enabled=True, cache_duration_seconds=60)
    policy.forget_all()
    monkeypatch.setattr(native_thread_pool, "LARGE", LARGE)
    return caller


def watch(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, threads: dict[str, list[bool]]) -> None:
    """Note for each call whether it was made beside the event loop."""
    monkeypatch.setattr(owner, name, noting(getattr(owner, name), name, threads))


def noting(work: Any, name: str, threads: dict[str, list[bool]]) -> Any:
    """Return the work, which notes for each call whether it is made beside the event loop."""
    loop = get_ident()

    def noted(*args: Any, **fields: Any) -> Any:
        threads.setdefault(name, []).append(get_ident() != loop)
        return work(*args, **fields)

    return noted


@pytest.mark.parametrize(("kb", "beside"), [(1, False), (LARGE_KB, True)])
def test_a_large_answer_is_kept_logged_and_written_beside_the_event_loop(
    keeping: Caller, monkeypatch: pytest.MonkeyPatch, kb: int, beside: bool
) -> None:
    threads: dict[str, list[bool]] = {}
    for owner, name in (
        *((response_cache, "encrypt_content"), (response_cache, "decrypt_content")),
        (record, "encode"),
    ):
        watch(monkeypatch, owner, name, threads)
    write_reply = noting(CLIENT.write_reply, "write_reply", threads)
    monkeypatch.setattr(chat_completions, "OPENAI", replace(CLIENT, write_reply=write_reply))
    content = f"go on [[sandbox kb={kb}]]"
    first = keeping.chat(content)
    assert (first.status_code, first["x-gateway-cache"]) == (200, "miss")
    assert threads == {"encrypt_content": [beside], "encode": [beside], "write_reply": [beside]}
    assert keeping.chat(content)["x-gateway-cache"] == "hit"
    assert threads["decrypt_content"] == [beside]
    assert settle_all() == 2
    written = first.json()["choices"][0]["message"]["content"]
    assert len(written) >= kb * 1000
    assert [row.content for row in RequestLog.objects.all()] == [written, written]


@pytest.mark.parametrize(("size", "beside"), [(1_000, False), (40_000, True)])
def test_a_large_question_is_logged_beside_the_event_loop(
    keeping: Caller, monkeypatch: pytest.MonkeyPatch, size: int, beside: bool
) -> None:
    threads: dict[str, list[bool]] = {}
    for name in ("keep_request", "encode"):
        watch(monkeypatch, record, name, threads)
    assert keeping.chat("a " * (size // 2)).status_code == 200
    assert threads == {"keep_request": [beside], "encode": [beside]}
    assert settle_all() == 1
    assert len(RequestLog.objects.get().messages[0]["content"]) == size


def test_a_large_vector_is_encoded_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, list[bool]] = {}
    watch(monkeypatch, response_cache, "_seal_all", threads)
    kept: list[Any] = []
    share: Any = type("Share", (), {"keep": lambda self, sealed, seconds: kept.extend(sealed)})()
    for dimensions in (8, 40_000):
        entry = response_cache.EmbeddingCacheEntry.__new__(response_cache.EmbeddingCacheEntry)
        entry.share, entry.seconds = share, 60
        entry._write(["key"], [response_cache._KeptVector(1, [0.5] * dimensions)])
    assert threads == {"_seal_all": [False, True]}
    assert [key for key, _ in kept] == ["key", "key"]


def test_without_a_free_thread_what_is_paid_is_done_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_thread_pool, "PATIENCE", 0.05)
    held = Event()
    slow = [gevent.spawn(native_thread_pool.offload, native_thread_pool.LARGE, held.wait) for _ in range(2)]
    gevent.sleep(0)
    with pytest.raises(Overloaded):
        native_thread_pool.offload(native_thread_pool.LARGE, lambda: None)
    assert native_thread_pool.offload_or_run(native_thread_pool.LARGE, get_ident) == get_ident()
    held.set()
    gevent.joinall(slow)
    assert native_thread_pool.offload_or_run(native_thread_pool.LARGE, get_ident) != get_ident()


def test_without_a_free_thread_a_large_stream_is_recorded_and_not_kept(
    keeping: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_thread_pool, "PATIENCE", 0.05)
    slow: list[Any] = []
    held = Event()
    store = response_cache.CacheEntry.store

    def store_under_load(self: response_cache.CacheEntry, model_id: str, size: int) -> None:
        slow.extend(gevent.spawn(native_thread_pool.offload, native_thread_pool.LARGE, held.wait) for _ in range(2))
        gevent.sleep(0)
        store(self, model_id, size)

    monkeypatch.setattr(response_cache.CacheEntry, "store", store_under_load)
    content = f"go on [[sandbox kb={LARGE_KB} chunk=8192]]"
    answers = []
    for _ in range(2):
        held.clear()
        answer = keeping.chat(content, stream=True)
        b"".join(answer.streaming_content)
        answers.append(answer["x-gateway-cache"])
        held.set()
        gevent.joinall(slow)
    assert answers == ["miss", "miss"]
    assert settle_all() == 2
    assert [(row.status_code, len(row.content) >= LARGE_KB * 1000) for row in RequestLog.objects.all()] == [
        (200, True)
    ] * 2
