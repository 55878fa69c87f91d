"""The OpenAPI document is made once, beside requests (`tests/kernel/concurrency/test_native_thread_pool.py`)."""

from __future__ import annotations

import pytest

from apps.kernel.concurrency.native_thread_pool import ComputedOnce
from gateway_project.openapi import document as module


def test_the_document_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[module.Record]()

    def make() -> module.Record:
        made.append(module._make_document())
        return made[-1]

    monkeypatch.setattr(module, "_DOCUMENT", ComputedOnce(make))
    assert module.document() is module.document() is made[0]
    assert len(made) == 1
    assert made[0]["openapi"].startswith("3.")
