"""Texts that a guard let pass are remembered by digest, in bounds of number and time."""

from __future__ import annotations

import pytest

from apps.guardrails import passed_texts
from apps.guardrails.passed_texts import PassedTexts


def test_a_text_is_remembered_for_one_guard() -> None:
    passed = PassedTexts()
    passed.add(passed.digest_of("guard one", "hello"))
    assert passed.has(passed.digest_of("guard one", "hello"))
    assert not passed.has(passed.digest_of("guard two", "hello"))
    assert not passed.has(passed.digest_of("guard one", "hello there"))
    # The border between guard and text is part of it.
    assert passed.digest_of("ab", "c") != passed.digest_of("a", "bc")
    # Another process has another secret.
    assert PassedTexts().digest_of("guard one", "hello") != passed.digest_of("guard one", "hello")


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passed_texts, "MAX_TEXTS", 4)
    passed = PassedTexts()
    digests = [passed.digest_of("guard", str(number)) for number in range(5)]
    for digest in digests:
        passed.add(digest)
    assert [passed.has(digest) for digest in digests] == [False, False, True, True, True]


@pytest.mark.parametrize(("seconds", "is_known"), [(200.0, True), (400.0, True), (700.0, False)])
def test_they_are_forgotten_after_some_minutes(monkeypatch: pytest.MonkeyPatch, seconds: float, is_known: bool) -> None:
    now = [1000.0]
    monkeypatch.setattr("apps.guardrails.passed_texts.time.monotonic", lambda: now[0])
    passed = PassedTexts()
    digest = passed.digest_of("guard", "hello")
    passed.add(digest)
    now[0] += seconds
    assert passed.has(digest) is is_known
