"""Scan memory: findings of system rules in texts, so that repeated texts need not be scanned again.

An agent sends its whole conversation with every request: all but the last few texts were scanned before.

It stores digests of texts and offsets of findings, never a text. The digests of findings cover the text, its role, kept
secrets, and the organization's rules in force: response times reveal nothing of another organization's texts.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from apps.guardrails.findings.scan_types import RuleSettings, Span
from apps.guardrails.text.scanned_text import ScannedText

# Bytes that a process keeps at most, as counted below: some twenty thousand texts in which nothing was found.
MAX_BYTES: Final = 4_000_000
_TEXT_BYTES, _SPAN_BYTES = 200, 250
# Texts with more findings are not remembered.
MAX_FOUND: Final = 100
# Stands for a speaker where a text is read for what it keeps secret.
_OPERATOR: Final = "operator"


Value = TypeVar("Value")


class DigestMemory(Generic[Value]):
    """Values of recent texts, by a digest of each: the older half is forgotten when the newer one is full, or old.

    Digests are keyed with a secret of the process, which makes them useless elsewhere. Safe on several threads:
    concurrent changes may miscount by a text or two.
    """

    def __init__(self, max_cost: int, max_seconds: float = math.inf) -> None:
        """Take the sum of the costs that are kept, and for how long: half of either at least."""
        self._secret = secrets.token_bytes(32)
        self._max_cost, self._max_seconds = max_cost // 2, max_seconds / 2
        self.forget_all()

    def forget_all(self) -> None:
        """Forget all texts."""
        self._new: dict[bytes, Value] = {}
        self._old: dict[bytes, Value] = {}
        self._cost, self._since = 0, time.monotonic()

    def digest(self, around: str, utf8: bytes) -> bytes:
        """Return the digest of a text and of what it is judged by."""
        key = around.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(len(key).to_bytes(8) + key, key=self._secret, digest_size=16)
        digest.update(utf8)
        return digest.digest()

    def find(self, digest: bytes) -> Value | None:
        """Return the value of a text; None if it is not remembered."""
        self._turn()
        found = self._new.get(digest)
        return self._old.get(digest) if found is None else found

    def remember(self, digest: bytes, value: Value, cost: int = 1) -> None:
        """Keep the value of a text."""
        self._turn()
        self._new[digest] = value
        self._cost += cost

    def _turn(self) -> None:
        seconds = time.monotonic() - self._since
        if self._cost > self._max_cost or seconds > self._max_seconds:
            self._old, self._new = {} if seconds > 2 * self._max_seconds else self._new, {}
            self._cost, self._since = 0, time.monotonic()


class FoundSpan(NamedTuple):
    """A finding of a system rule in a text; `rule` is its index among the rules in force."""

    rule: int
    span: Span


class ScanMemory(DigestMemory[tuple[FoundSpan, ...]]):
    """Findings in recent texts; those of texts that are asked for stay."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        super().__init__(max_bytes)

    def digest_of(self, text: ScannedText, settings: RuleSettings, rules: int, speaker: str) -> bytes:
        """Return what a text is remembered by, as the rules for a speaker see it."""
        return self.digest(repr((rules, speaker, settings.role, sorted(settings.kept))), text.utf8)

    def find(self, digest: bytes) -> tuple[FoundSpan, ...] | None:
        """Return the findings in a text; None if it is not remembered."""
        found = super().find(digest)
        if found is not None and digest not in self._new:
            self.keep(digest, found)
        return found

    def keep(self, digest: bytes, found: tuple[FoundSpan, ...]) -> None:
        """Remember the findings in a text, unless there are too many."""
        if len(found) <= MAX_FOUND:
            self.remember(digest, found, _TEXT_BYTES + _SPAN_BYTES * len(found))


class ScanRecall:
    """The memory as one request uses it, under the rules with this number; it counts the texts."""

    def __init__(self, memory: ScanMemory, rules: int) -> None:
        self._memory = memory
        self._rules = rules
        self.remembered = 0
        self.scanned = 0

    def look(
        self, text: ScannedText, settings: RuleSettings, speaker: str
    ) -> tuple[bytes, tuple[FoundSpan, ...] | None]:
        """Return the digest of a text and its findings; None if it must be scanned."""
        digest = self._memory.digest_of(text, settings, self._rules, speaker)
        found = self._memory.find(digest)
        if found is None:
            self.scanned += 1
        else:
            self.remembered += 1
        return digest, found

    def keep(self, digest: bytes, found: tuple[FoundSpan, ...]) -> None:
        """Remember the findings in a scanned text."""
        self._memory.keep(digest, found)

    def read_instructions(self, text: ScannedText, read: Callable[[ScannedText], frozenset[str]]) -> frozenset[str]:
        """Return what instructions keep secret; where that was nothing, they are not read again."""
        digest = self._memory.digest_of(text, RuleSettings(), self._rules, _OPERATOR)
        if self._memory.find(digest) is not None:
            return frozenset()
        kept = read(text)
        if not kept:
            self._memory.keep(digest, ())
        return kept
