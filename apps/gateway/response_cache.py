"""Response cache and embedding cache: answers and vectors, for projects that ask for them.

Response cache: answers are kept, and replayed to equal requests, plain or streamed. An entry is keyed by its project
and all of the request that can change the answer; it holds the answer's events. Equal requests at the same time in one
process are sent once. Entries are encrypted: an answer is content, whatever the organization's retention. They lie in
the cache store, within the organization's bytes. One project's answer never reaches another's client.

Embedding cache: the vector of each input is kept; only missing ones are asked for. Keys, encryption, time to live and
bounds are those of the response cache. Vectors of two models are never mixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, Final
from uuid import UUID

import msgspec
import structlog
from django.conf import settings
from gevent.event import Event as Signal
from msgspec.structs import replace
from redis.exceptions import RedisError

from apps.gateway.canonical import events as canonical
from apps.gateway.canonical.chat import Chat, Text
from apps.gateway.canonical.events import Event, Finished, PartialImage, ResultsGiven, Started, UsageReported, Waiting
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.token_estimate import token_weight
from apps.kernel.concurrency.native_thread_pool import offload
from apps.kernel.errors import Overloaded
from apps.kernel.secrets.encryption import UnreadableSecretError, decrypt_content, encrypt_content, keyed_digest
from apps.kernel.usage import Usage
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
    # How many of a request's inputs had an answer of their own in the cache.
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


# Bytes of a request's vectors that are read or stored; vectors beyond are requested, and not stored.
MAX_TOTAL_BYTES: Final = 16 * 1024 * 1024
# Vectors that are read or written at a time, so that the store goes on with others in between.
_AT_ONCE: Final = 64


class _KeptVector(msgspec.Struct, array_like=True, frozen=True):
    """A vector as its provider gave it, and the share of the counted tokens that its input has; 0 where none were."""

    tokens: int
    vector: list[float] | str


@dataclass(slots=True)
class EmbeddingCacheEntry(CacheEntry):
    """The entries of one request's inputs, in their order."""

    chat: Chat | None = None
    input_keys: list[str] = field(default_factory=list)
    # Whether only the requested model may answer: vectors of two models cannot be compared.
    is_of_one_model: bool = True
    _found: list[_KeptVector | None] = field(default_factory=list)
    _given: list[Any] = field(default_factory=list)
    _tokens: int = 0
    _whole: bool = False

    def left_to_ask(self, chat: Chat) -> Chat:
        """Return the request for those inputs whose vectors are not kept."""
        if not self.is_of_one_model:
            self._found = []
        self.kept_inputs = sum(kept is not None for kept in self._found)
        if not self.kept_inputs:
            return chat
        missing = self._missing
        message, embedding = chat.messages[0], chat.embedding
        if embedding is not None and embedding.tokens is not None:
            tokens = [embedding.tokens[place] for place in missing]
            return replace(chat, embedding=replace(embedding, tokens=tokens))
        parts = [message.parts[place] for place in missing]
        return replace(chat, messages=[replace(message, parts=parts)])

    def take(self, event: Event) -> Event:
        """Return an event of the answer with the vectors of all inputs, in order; remember what may be kept of it."""
        if type(event) is UsageReported:
            self._tokens = 0 if event.usage.estimated else event.usage.input
        elif type(event) is Finished:
            self._whole = event.reason == "stop"
        elif type(event) is ResultsGiven:
            self._given = event.values
            if self.kept_inputs:
                given = iter(event.values)
                return ResultsGiven(values=[next(given) if kept is None else kept.vector for kept in self._found])
        return event

    def store(self, model_id: str, size: int) -> None:
        """Keep each vector of a model that is not kept yet, if the model is the one that was asked."""
        missing = self._missing if self.kept_inputs else range(len(self.input_keys))
        if self.hit or not self._whole or model_id != self.model_id or len(missing) != len(self._given):
            return
        shares = _shares(self._tokens, [self._weight(place) for place in missing])
        keys = [self.input_keys[place] for place in missing]
        kept = [_KeptVector(tokens, vector) for tokens, vector in zip(shares, self._given, strict=True)]
        try:
            for start in range(0, len(keys), _AT_ONCE):
                self._write(keys[start : start + _AT_ONCE], kept[start : start + _AT_ONCE])
                if start * _size_of(kept[0]) > MAX_TOTAL_BYTES:
                    break
        except RedisError as error:
            log.warning("cache.not_kept", error=type(error).__name__)

    @property
    def _missing(self) -> list[int]:
        return [place for place, kept in enumerate(self._found) if kept is None]

    def _weight(self, place: int) -> int:
        """Return what an input weighs among the others, at least 1."""
        if self.chat is None:
            return 1
        if self.chat.embedding is not None and self.chat.embedding.tokens is not None:
            return len(self.chat.embedding.tokens[place])
        part = self.chat.messages[0].parts[place]
        return max(token_weight(part.text), 1) if isinstance(part, Text) else 1

    def _write(self, keys: Sequence[str], kept: Sequence[_KeptVector]) -> None:
        """Keep some vectors in one round trip. Raises RedisError."""
        size = sum(map(_size_of, kept))
        self.share.keep(offload(size, partial(_seal_all, keys, kept)), self.seconds)

    def _read(self) -> list[Event] | None:
        """Return the whole answer where every vector is kept; those that are found are remembered in any case."""
        try:
            self._found = self._find_all()
        except RedisError as error:
            log.warning("cache.not_read", error=type(error).__name__)
            self._found = []
        found = [kept for kept in self._found if kept is not None]
        if not found or len(found) < len(self._found):
            return None
        self.kept_inputs = len(found)
        events: list[Event] = [Started(), ResultsGiven(values=[kept.vector for kept in found]), Finished(reason="stop")]
        if all(kept.tokens for kept in found):
            events.append(UsageReported(usage=Usage(input=sum(kept.tokens for kept in found))))
        return events

    def _find_all(self) -> list[_KeptVector | None]:
        """Return the vector of each input, None for one that is not kept. Raises RedisError."""
        found: list[_KeptVector | None] = []
        total = 0
        for start in range(0, len(self.input_keys), _AT_ONCE):
            keys = self.input_keys[start : start + _AT_ONCE]
            if total > MAX_TOTAL_BYTES:
                found += [None] * len(keys)
                continue
            read = self.share.read_all(keys)
            size = sum(len(data) for data in read if data is not None)
            found += offload(size, partial(_open_all, keys, read))
            total += size
        return found


def find_embedding_entry(
    project_id: UUID,
    share: CacheShare,
    seconds: int | None,
    model_id: str,
    provider: str | None,
    chat: Chat,
    client_disconnect: ClientDisconnect,
    *,
    is_of_one_model: bool,
) -> CacheEntry | None:
    """Return the entry of a request for embeddings; None when the project keeps no answers."""
    whole = find_cache_entry(project_id, share, seconds, model_id, provider, chat, client_disconnect)
    if whole is None:
        return None
    embedding = chat.embedding
    tokens = None if embedding is None else embedding.tokens
    inputs: Sequence[Any] = chat.messages[0].parts if tokens is None else tokens
    options = None if embedding is None else replace(embedding, tokens=None)
    without_inputs = replace(chat, messages=[], embedding=options)
    return EmbeddingCacheEntry(
        key=whole.key,
        share=share,
        seconds=whole.seconds,
        model_id=model_id,
        client_disconnect=client_disconnect,
        chat=chat,
        input_keys=[key_of(project_id, model_id, provider, without_inputs, one) for one in inputs],
        is_of_one_model=is_of_one_model,
    )


def _open_all(keys: Sequence[str], read: Sequence[Any]) -> list[_KeptVector | None]:
    return list(map(_opened, keys, read))


def _opened(key: str, data: Any) -> _KeptVector | None:
    """Return the vector stored under a key; None where there is none, or no key decrypts it any more."""
    if data is not None:
        # A value that another version stored is no vector.
        with suppress(UnreadableSecretError, msgspec.MsgspecError):
            return msgspec.msgpack.decode(decrypt_content(data, key), type=_KeptVector)
    return None


def _shares(total: int, weights: Sequence[int]) -> list[int]:
    """Return whole parts of a total in proportion to weights above 0; they add up to it."""
    whole = sum(weights)
    ends = [total * reached // whole for reached in accumulate(weights, initial=0)]
    return [end - begin for begin, end in pairwise(ends)]


def _seal_all(keys: Sequence[str], kept: Sequence[_KeptVector]) -> list[tuple[str, bytes]]:
    """Return each key with its vector as it is kept, encrypted; without those that are too large."""
    encoded = zip(keys, map(msgspec.msgpack.encode, kept), strict=True)
    return [(key, encrypt_content(data, key)) for key, data in encoded if len(data) <= MAX_BYTES]


def _size_of(kept: _KeptVector) -> int:
    """Return about how many bytes a vector takes; all of one answer are alike."""
    return len(kept.vector) * (1 if isinstance(kept.vector, str) else 9)
