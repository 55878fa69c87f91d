"""Response cache: keep answers for a project that asks for it, and replay them to equal requests, plain or streamed.

An entry is keyed by its project and all of the request that can change the answer; it holds the answer's events. Equal
requests at the same time in one process are sent once. Entries are encrypted: an answer is content, whatever the
organization's retention. They lie in the cache store, within the organization's bytes. One project's answer never
reaches another's client.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

import msgspec
import structlog
from django.conf import settings
from gevent.event import Event as Signal
from redis.exceptions import RedisError

from apps.gateway.canonical import events as canonical
from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import Event, Finished, PartialImage, Waiting
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.kernel.concurrency.native_thread_pool import offload
from apps.kernel.errors import Overloaded
from apps.kernel.secrets.encryption import UnreadableSecretError, decrypt_content, encrypt_content, keyed_digest
from apps.kernel.valkey.cache_store import CacheShare

log = structlog.get_logger(__name__)

# Bytes of one kept answer; a larger one is not kept.
MAX_BYTES = 1024 * 1024
# Ends after which an answer is whole: not cut short, not filtered.
_WHOLE = frozenset({"stop", "tool_calls"})
# Fields beside the question: the end user, how the answer arrives, how the provider bills it.
_BESIDE = {
    "source": None,
    "stream": False,
    "include_usage": None,
    "user": None,
    "metadata": None,
    "prompt_cache_key": None,
    "service_tier": None,
    "store": None,
    "metadata_as_text": False,
}
_KINDS = {name: kind for name, kind in vars(canonical).items() if isinstance(kind, type) and issubclass(kind, Event)}
_inflight: dict[str, Signal] = {}


@dataclass(slots=True)
class CacheEntry:
    """One request's entry in the cache. Close it whatever happens: others may wait for the answer."""

    key: str
    # Where the organization keeps it.
    share: CacheShare
    seconds: int
    # The model that the question is asked of; others may answer it (`models`), whose answers are not this one's.
    model_id: str
    client_disconnect: ClientDisconnect
    hit: bool = False
    # How many of a request's inputs had an answer of their own in the cache (`embedding_cache.py`).
    kept_inputs: int = 0
    _kept: list[Event] = field(default_factory=list)
    _signal: Signal | None = None

    def replay(self) -> Iterator[Event]:
        """Yield the kept answer, nothing when there is none; `Waiting` while the same question is being answered."""
        kept = self._read()
        if kept is None:
            yield from self._wait_for_inflight()
            kept = self._read() if self._signal is None else None
        if kept is None:
            if self._signal is None:
                self._claim_inflight()
            return
        self.hit = True
        yield from kept

    def left_to_ask(self, chat: Chat) -> Chat:
        """Return what has to be asked for a question that has no kept answer: all of it."""
        return chat

    def take(self, event: Event) -> Event:
        """Return an event of an answer as it is to be passed on; remember it, as the answer may be kept."""
        if not isinstance(event, Waiting | PartialImage):
            # The event is changed further on: the copy is not.
            self._kept.append(msgspec.structs.replace(event))
        return event

    def store(self, model_id: str, size: int) -> None:
        """Keep the answer of a model, if it is the one that was asked, and the answer whole and not too large.

        It has about `size` bytes. Under load a large answer is not kept.
        """
        ends = [event for event in self._kept if isinstance(event, Finished)]
        if self.hit or model_id != self.model_id or not ends or any(end.reason not in _WHOLE for end in ends):
            return
        try:
            sealed = offload(size, partial(_seal, self._kept, self.key))
            if sealed is not None:
                self.share.keep([(self.key, sealed)], self.seconds)
        except (RedisError, Overloaded) as error:
            log.warning("cache.not_kept", error=type(error).__name__)

    def close(self) -> None:
        """Let those go on who wait for the same answer."""
        if self._signal is not None:
            if _inflight.get(self.key) is self._signal:
                del _inflight[self.key]
            self._signal.set()
            self._signal = None

    def _claim_inflight(self) -> None:
        self._signal = _inflight[self.key] = Signal()

    def _wait_for_inflight(self) -> Iterator[Event]:
        inflight = _inflight.get(self.key)
        if inflight is None:
            self._claim_inflight()
            return
        while True:
            with self.client_disconnect.raise_while_waiting():
                if inflight.wait(settings.HEARTBEAT_INTERVAL):
                    return
            yield Waiting()

    def _read(self) -> list[Event] | None:
        try:
            data = self.share.read(self.key)
        except RedisError as error:
            log.warning("cache.not_read", error=type(error).__name__)
            return None
        if data is None:
            return None
        # A value that another version stored is no answer, nor is one encrypted with a key that is gone.
        with suppress(UnreadableSecretError, msgspec.MsgspecError, ValueError, KeyError, TypeError):
            return offload(len(data), partial(_open, data, self.key))
        return None


def _seal(events: list[Event], key: str) -> bytes | None:
    """Return an answer as it is kept, encrypted; None for one that is too large."""
    data = msgspec.json.encode([(type(event).__name__, event) for event in events])
    return encrypt_content(data, key) if len(data) <= MAX_BYTES else None


def _open(data: str, key: str) -> list[Event]:
    """Return the events of a kept answer. Raises UnreadableSecretError, MsgspecError, ValueError, KeyError."""
    events = msgspec.json.decode(decrypt_content(data, key), type=list[tuple[str, msgspec.Raw]])
    return [msgspec.json.decode(raw, type=_KINDS[name]) for name, raw in events]


def find_cache_entry(
    project_id: UUID,
    share: CacheShare,
    seconds: int | None,
    model_id: str,
    provider: str | None,
    chat: Chat,
    client_disconnect: ClientDisconnect,
) -> CacheEntry | None:
    """Return a chat's entry; None when the project keeps no answers, and for audio, which is never held as a whole.

    `provider` is the one that was named; where an edition was, with that.
    """
    if not seconds or chat.speech is not None:
        return None
    return CacheEntry(key_of(project_id, model_id, provider, chat), share, seconds, model_id, client_disconnect)


def key_of(project_id: UUID, model_id: str, provider: str | None, chat: Chat, *also: object) -> str:
    """Return where the answer to a question is kept: a digest of all that can change it. `also` are parts of it."""
    question = msgspec.structs.replace(chat, model=model_id, **_BESIDE)
    return f"answer:{keyed_digest(msgspec.json.encode([str(project_id), provider, question, *also]))}"
