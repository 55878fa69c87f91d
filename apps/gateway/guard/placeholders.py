"""Placeholders of a request: numbered words in place of masked values, the same word for the same value.

Numbers follow the order of first appearance, so that a conversation that is sent again with every turn gets the same
ones. A placeholder that the client wrote itself is never used: an answer would give it another meaning.

The cache store keeps a conversation's numbers from turn to turn, for clients that drop or sum up its beginning. Digests
of values are kept, never a value: an answer only ever gets back what its own request said. A lost entry costs nothing
but a provider's prompt cache.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Final

import msgspec
import structlog
from redis.exceptions import RedisError

from apps.gateway.guard.json_text import Redaction, Shape
from apps.guardrails.findings.redaction import numbered_placeholder
from apps.kernel.secrets.encryption import UnreadableSecretError, decrypt_content, encrypt_content, keyed_digest
from apps.kernel.valkey.cache_store import CacheShare

PLACEHOLDER: Final = re.compile(r"\[[A-Z][A-Z0-9_]*_[1-9][0-9]*\]", re.ASCII)
# Characters of a longer value, which does not come back: the rest of a text that could not be scanned in time, say.
MAX_VALUE_LENGTH: Final = 16_384
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
# A value's digest by label: the value numbered n is at n - 1. Empty for a number that is never used.
Numbers = dict[str, list[str]]


class MaskedValue(msgspec.Struct):
    """A masked value as it was written, and the JSON values that it was in this request."""

    text: str
    was_number: bool = False
    was_string: bool = False

    @property
    def is_numeric(self) -> bool:
        """Whether it can be a number of JSON."""
        return _NUMBER.fullmatch(self.text) is not None

    @property
    def is_number(self) -> bool:
        """Whether it was a number of JSON, and never a string of its own."""
        return self.was_number and not self.was_string and self.is_numeric


class Placeholders:
    """The placeholders of one request. `values` has what each stands for; `numbers` grows by the new values."""

    def __init__(self, numbers: Numbers, digest_of: Callable[[str, str], str], reserved: Collection[str] = ()) -> None:
        """Take the conversation's numbers, the digest of a label and a value, and placeholders that are not free."""
        self.numbers = numbers
        self.values: dict[str, MaskedValue] = {}
        self.is_changed = False
        self._digest_of = digest_of
        self._reserved = reserved
        self._words: dict[tuple[str, str], str] = {}
        self._places = {label: {one: place for place, one in enumerate(known)} for label, known in numbers.items()}

    def write(self, redaction: Redaction, value: str, shape: Shape) -> str:
        """Return the placeholder of a value, which is numbered if it comes back."""
        if redaction.label is None or len(value) > MAX_VALUE_LENGTH:
            return redaction.replacement
        key = redaction.label, value
        word = self._words.get(key)
        if word is None:
            word = self._words[key] = self._number(*key)
            self.values[word] = MaskedValue(value)
        masked = self.values[word]
        masked.was_number = masked.was_number or shape == "number"
        masked.was_string = masked.was_string or shape == "string"
        return word

    def _number(self, label: str, value: str) -> str:
        """Return the placeholder of the conversation's number for a value, else of the next free one."""
        digest = self._digest_of(label, value)
        known, places = self.numbers.setdefault(label, []), self._places.setdefault(label, {})
        place = places.get(digest)
        if place is not None and (word := numbered_placeholder(label, place + 1)) not in self._reserved:
            return word
        self.is_changed = True
        if place is not None:
            known[place] = ""
        while (word := numbered_placeholder(label, len(known) + 1)) in self._reserved:
            known.append("")
        places[digest] = len(known)
        known.append(digest)
        return word


def find_placeholders(texts: Iterable[str]) -> set[str]:
    """Return all words of a placeholder's form."""
    return {word for text in texts for word in PLACEHOLDER.findall(text)}


log = structlog.get_logger(__name__)

# Seconds that numbers are kept after a conversation's latest turn, and after which an unchanged entry is written again.
TIME_TO_LIVE: Final = 24 * 3_600
RENEW_AFTER: Final = 3_600
# Values of one conversation that are remembered; further ones are numbered after them, in every turn again.
MAX_VALUES: Final = 1_000
# Characters of a digest: enough for so few values.
_DIGEST_LENGTH: Final = 20


class _Entry(msgspec.Struct):
    """A conversation's numbers, and when they were written (Unix seconds)."""

    numbers: Numbers
    written_at: int


_decoder: Final = msgspec.json.Decoder(_Entry)


class ConversationNumbers:
    """The numbers of one conversation of an organization. A store that fails never fails a request."""

    def __init__(self, share: CacheShare, conversation: str) -> None:
        """`conversation` is what all of its requests share."""
        self._share = share
        self._key = f"placeholders:{keyed_digest(conversation.encode('utf-8', 'surrogatepass'))}"
        self._written_at = 0

    def digest_of(self, label: str, value: str) -> str:
        """Return the digest of a value, which cannot be guessed without the key, nor compared between organizations."""
        salted = f"{self._share.organization_id}:{self._key}:{label}:{value}"
        return keyed_digest(salted.encode("utf-8", "surrogatepass"))[:_DIGEST_LENGTH]

    def read(self) -> Numbers:
        """Return the kept numbers; none where nothing is kept, or nothing that can be read."""
        try:
            found = self._share.read(self._key)
        except RedisError as error:
            log.warning("placeholders.not_read", error=type(error).__name__)
            return {}
        if found is not None:
            with suppress(UnreadableSecretError, msgspec.MsgspecError):
                entry = _decoder.decode(decrypt_content(found, self._key))
                self._written_at = entry.written_at
                return entry.numbers
        return {}

    def keep(self, numbers: Numbers, *, is_changed: bool) -> None:
        """Keep the numbers for the next turn, where they changed or were written a while ago."""
        now = int(time.time())
        if not is_changed and now - self._written_at < RENEW_AFTER:
            return
        left, bounded = MAX_VALUES, dict[str, list[str]]()
        for label, known in numbers.items():
            bounded[label] = known[:left]
            left -= len(bounded[label])
        content = encrypt_content(msgspec.json.encode(_Entry(bounded, now)), self._key)
        try:
            self._share.keep([(self._key, content)], TIME_TO_LIVE)
        except RedisError as error:
            log.warning("placeholders.not_kept", error=type(error).__name__)
