"""Guardrails on a provider's searches of the web: the model wrote the queries, and clients learn of the findings."""

from __future__ import annotations

from apps.gateway.canonical.events import Finished, Searched
from tests.gateway.guard.test_response_guard import END, MASK, WORD, guard_of, passed


def test_what_was_searched_for_is_masked_like_words() -> None:
    assert passed([Searched(query=f"where is {WORD}"), END]) == [Searched(query=f"where is {MASK}"), END]
    assert passed([Searched(), END]) == [Searched(), END]
    assert passed([Searched(query=WORD), END], guard_of("block")) == [Finished(reason="content_filter")]
