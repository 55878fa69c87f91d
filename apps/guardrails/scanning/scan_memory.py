"""Scan memory: findings of system rules in texts, so that repeated texts need not be scanned again.

An agent sends its whole conversation with every request: all but the last few texts were scanned before.

It stores digests of texts and offsets of findings, never a text. Digests are keyed with a secret of the process, which
makes them useless elsewhere. They cover the text, its role, kept secrets, and the organization's rules in force:
response times reveal nothing of another organization's texts.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from apps.guardrails.findings.scan_types import RuleSettings, Span
from apps.guardrails.text.scanned_text import ScannedText

# Bytes that a process keeps at most, as counted below: some twenty thousand texts in which nothing was found.
MAX_BYTES: Final = 4_000_000
_TEXT_BYTES, _SPAN_BYTES = 200, 250
# Texts with more findings are not remembered.
MAX_FOUND: Final = 100
# Stands for a speaker where a text is read for what it keeps secret.
_OPERATOR: Final = "operator"


class FoundSpan(NamedTuple):
    """A finding of a system rule in a text; `rule` is its index among the rules in force."""

    rule: int
    span: Span


class ScanMemory:
    """Findings in recent texts: those that were not used for a while are forgotten, half at a time.

    Safe on several threads: concurrent changes may miscount by a text or two.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._secret = secrets.token_bytes(32)
        self._max_bytes = max_bytes // 2
        self._bytes = 0
        self._new: dict[bytes, tuple[FoundSpan, ...]] = {}
        self._old: dict[bytes, tuple[FoundSpan, ...]] = {}

    def digest_of(self, text: ScannedText, settings: RuleSettings, rules: int, speaker: str) -> bytes:
        """Return what a text is remembered by, as the rules for a speaker see it."""
        around = repr((rules, speaker, settings.role, sorted(settings.kept))).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(len(around).to_bytes(8), key=self._secret, digest_size=16)
        digest.update(around)
        digest.update(text.utf8)
        return digest.digest()

    def find(self, digest: bytes) -> tuple[FoundSpan, ...] | None:
        """Return the findings in a text; None if it is not remembered."""
        found = self._new.get(digest)
        if found is None and (found := self._old.get(digest)) is not None:
            self.keep(digest, found)
        return found

    def keep(self, digest: bytes, found: tuple[FoundSpan, ...]) -> None:
        """Remember the findings in a text, unless there are too many."""
        if len(found) > MAX_FOUND:
            return
        self._new[digest] = found
        self._bytes += _TEXT_BYTES + _SPAN_BYTES * len(found)
        if self._bytes > self._max_bytes:
            self._old, self._new, self._bytes = self._new, {}, 0


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
