"""Conversation numbers: the numbers of a conversation's placeholders, kept in the cache store from turn to turn.

They keep a value's number when a client drops or sums up the beginning of its conversation. Digests of values are kept,
never a value: an answer only ever gets back what its own request said. A lost entry costs nothing but a provider's
prompt cache, as numbers follow the order of first appearance again.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

import msgspec
import structlog
from redis.exceptions import RedisError

from apps.gateway.guard.placeholders import Numbers
from apps.kernel.secrets.encryption import UnreadableSecretError, decrypt_content, encrypt_content, keyed_digest
from apps.kernel.valkey.cache_store import CacheShare

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
