"""Values of texts are remembered by digest, in bounds of number and time."""

from __future__ import annotations

import pytest

from apps.guardrails.scanning.scan_memory import DigestMemory


def test_a_text_is_remembered_for_what_judged_it() -> None:
    passed = DigestMemory[bool](10)
    passed.remember(passed.digest("guard one", b"hello"), True)
    assert passed.find(passed.digest("guard one", b"hello")) is True
    assert passed.find(passed.digest("guard two", b"hello")) is None
    assert passed.find(passed.digest("guard one", b"hello there")) is None
    # The border between guard and text is part of it.
    assert passed.digest("ab", b"c") != passed.digest("a", b"bc")
    # Another process has another secret.
    assert DigestMemory[bool](10).digest("guard one", b"hello") != passed.digest("guard one", b"hello")
    passed.forget_all()
    assert passed.find(passed.digest("guard one", b"hello")) is None


def test_the_oldest_are_forgotten() -> None:
    passed = DigestMemory[bool](4)
    digests = [passed.digest("guard", b"%d" % number) for number in range(7)]
    for digest in digests:
        passed.remember(digest, True)
    assert [passed.find(digest) for digest in digests] == [None, None, None, True, True, True, True]


@pytest.mark.parametrize(("seconds", "is_known"), [(200.0, True), (400.0, True), (700.0, None)])
def test_they_are_forgotten_after_some_minutes(
    monkeypatch: pytest.MonkeyPatch, seconds: float, is_known: bool | None
) -> None:
    now = [1000.0]
    monkeypatch.setattr("apps.guardrails.scanning.scan_memory.time.monotonic", lambda: now[0])
    passed = DigestMemory[bool](10, 600.0)
    digest = passed.digest("guard", b"hello")
    passed.remember(digest, True)
    now[0] += seconds
    assert passed.find(digest) is is_known
