"""Scan memory: what system rules found in texts, so that texts which come again need not be looked through again.

An agent sends its whole conversation with every request: all but the last few texts were looked through before.

Knows digests of texts, and where in them something was found. Must never know a text: digests are keyed with a secret
of the process, which makes them useless elsewhere. They are of the text, of who says it, of what is kept, and of the
rules in force, which are those of one organization: nobody can tell by how long it takes what another one sends.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Final, NamedTuple

from apps.guardrails.findings.scan_types import RuleSettings, Span
from apps.guardrails.text.scanned_text import ScannedText

# Bytes that a process keeps at most, as counted below: some twenty thousand texts in which nothing was found.
MOST_BYTES: Final = 4_000_000
_TEXT_BYTES, _SPAN_BYTES = 200, 250
# Of a text in which more was found nothing is remembered.
MOST_FOUND: Final = 100


class FoundSpan(NamedTuple):
    """What a system rule found in a text; `rule` is its place among the rules in force."""

    rule: int
    span: Span


class ScanMemory:
    """What was found in the texts of late: those that were not asked for in a while are forgotten, half at a time.

    Safe on several threads: what two of them do at once may be counted wrongly, by a text or two.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._secret = secrets.token_bytes(32)
        self._most_bytes = most_bytes // 2
        self._bytes = 0
        self._new: dict[bytes, tuple[FoundSpan, ...]] = {}
        self._old: dict[bytes, tuple[FoundSpan, ...]] = {}

    def digest_of(self, text: ScannedText, settings: RuleSettings, rules: int) -> bytes:
        """Return what a text is remembered by, as these rules see it."""
        around = repr((rules, settings.role, sorted(settings.kept))).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(len(around).to_bytes(8), key=self._secret, digest_size=16)
        digest.update(around)
        digest.update(text.utf8)
        return digest.digest()

    def find(self, digest: bytes) -> tuple[FoundSpan, ...] | None:
        """Return what was found in a text; None where nobody remembers."""
        found = self._new.get(digest)
        if found is None and (found := self._old.get(digest)) is not None:
            self.keep(digest, found)
        return found

    def keep(self, digest: bytes, found: tuple[FoundSpan, ...]) -> None:
        """Remember what was found in a text, unless it is too much."""
        if len(found) > MOST_FOUND:
            return
        self._new[digest] = found
        self._bytes += _TEXT_BYTES + _SPAN_BYTES * len(found)
        if self._bytes > self._most_bytes:
            self._old, self._new, self._bytes = self._new, {}, 0


class ScanRecall:
    """The memory as one request uses it, under the rules with this number; it counts the texts."""

    def __init__(self, memory: ScanMemory, rules: int) -> None:
        self._memory = memory
        self._rules = rules
        self.remembered = 0
        self.scanned = 0

    def look(self, text: ScannedText, settings: RuleSettings) -> tuple[bytes, tuple[FoundSpan, ...] | None]:
        """Return what a text is remembered by, and what was found in it; None where it must be looked through."""
        digest = self._memory.digest_of(text, settings, self._rules)
        found = self._memory.find(digest)
        if found is None:
            self.scanned += 1
        else:
            self.remembered += 1
        return digest, found

    def keep(self, digest: bytes, found: tuple[FoundSpan, ...]) -> None:
        """Remember what was found in a text that was looked through."""
        self._memory.keep(digest, found)
