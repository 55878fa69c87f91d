"""Thought signature cache: keep a model's signed thinking for an hour, for clients that do not send it back.

A vendor accepts thinking back only with its own signature, and some models do not go on without it. Most clients keep
the ids of tool calls and nothing else: the thinking is found again under the first call's id. A request that needs none
of it costs nothing.

Entries are encrypted, so that no content lies in the store in clear. A failing store never fails a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final
from uuid import UUID

import msgspec
import structlog
from msgspec.structs import replace
from redis.exceptions import RedisError

from apps.gateway.canonical.chat import Chat, Message, Part, Reasoning, ToolCall
from apps.gateway.canonical.events import Event, ReasoningDelta, ToolCallStarted
from apps.gateway.dialects.adapting.thinking import split_signature
from apps.kernel.secrets.encryption import UnreadableSecretError, decrypt, encrypt
from apps.kernel.valkey.cache_store import CacheShare

log = structlog.get_logger(__name__)

# Seconds that thinking is kept; bytes of one answer's; answers looked up for a request, the latest ones.
TIME_TO_LIVE: Final = 3_600
MAX_BYTES: Final = 256 * 1024
MAX_ANSWERS: Final = 32
_PREFIX: Final = "thinking:"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Reasoning]).decode


def cache_key_of(project_id: UUID, call_id: str) -> str:
    """Return where the thinking before a call is kept: a digest, as ids come from outside."""
    return _PREFIX + sha256(f"{project_id}:{split_signature(call_id)[0]}".encode("utf-8", "surrogatepass")).hexdigest()


class ThoughtSignatureCache(msgspec.Struct, eq=False):
    """The signed thinking of one request: what its history lacks, and what its answer brings."""

    project_id: UUID
    share: CacheShare
    # The format of signatures that the current provider would accept.
    _format: str | None = None
    _deltas: list[ReasoningDelta] = []
    _size: int = 0
    _call_id: str | None = None
    # By format: the thinking that the store has for this request's history, by place among the messages.
    _found: dict[str, dict[int, list[Reasoning]]] = {}

    def record_thinking(self, events: Iterator[Event]) -> Iterator[Event]:
        """Return an answer's events; its thinking is kept at its end, where the vendor will require it again."""
        return events if self._format is None else self._watch_all(events)

    def _watch_all(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            self._watch(event)
            yield event
        self._keep()

    def _watch(self, event: Event) -> None:
        """Take note of an answer's thinking and of its first call."""
        if isinstance(event, ReasoningDelta):
            if event.choice == 0 and self._size <= MAX_BYTES:
                self._size += len(event.text) + len(event.signature or "") + len(event.data or "")
                self._deltas.append(event)
        elif isinstance(event, ToolCallStarted) and event.choice == 0 and self._call_id is None:
            self._call_id = event.id

    def _keep(self) -> None:
        """Store the noted deltas, where there is sealed thinking before a call and it is not too large."""
        if self._call_id is None or not self._deltas or self._size > MAX_BYTES:
            return
        blocks = _blocks_of(self._deltas)
        if not any(block.format == self._format and _is_sealed(block) for block in blocks):
            return
        content = _encode(blocks)
        if len(content) > MAX_BYTES:
            return
        try:
            self.share.keep([(cache_key_of(self.project_id, self._call_id), encrypt(content))], TIME_TO_LIVE)
        except RedisError as error:
            log.warning("seal_store.not_kept", error=type(error).__name__)

    def restore_thinking(self, chat: Chat, form: str | None) -> Chat:
        """Return the chat with thinking of that format in front of the calls that lack it; one round trip, if any.

        None, for a target that takes no thinking back, or not for this request: the chat as it is.
        """
        self._format = form
        if form is None:
            return chat
        indexes = list(_lacking(chat.messages, form))[-MAX_ANSWERS:]
        if not indexes:
            return chat
        found = self._found.get(form)
        if found is None:
            found = self._found[form] = self._look_up(chat.messages, indexes, form)
        if not found:
            return chat
        messages = [
            replace(message, parts=[*found[index], *message.parts]) if index in found else message
            for index, message in enumerate(chat.messages)
        ]
        # The client's bytes lack it, so they may not be sent unchanged.
        return replace(chat, messages=messages, source=None)

    def _look_up(self, messages: list[Message], indexes: list[int], form: str) -> dict[int, list[Reasoning]]:
        keys = [cache_key_of(self.project_id, _first_call(messages[index]).id) for index in indexes]
        try:
            answers = self.share.read_all(keys)
        except RedisError as error:
            log.warning("seal_store.not_read", error=type(error).__name__)
            return {}
        found = {}
        for index, answer in zip(indexes, answers, strict=True):
            blocks = _read(answer)
            if any(block.format == form and _is_sealed(block) for block in blocks):
                found[index] = blocks
        return found


def _first_call(message: Message) -> ToolCall:
    return next(part for part in message.parts if isinstance(part, ToolCall))


def _lacking(messages: list[Message], form: str) -> Iterable[int]:
    """Yield the places of answers with calls and without thinking of the format. A call that carries its own seal lacks
    nothing."""
    for index, message in enumerate(messages):
        if message.role != "assistant":
            continue
        first = next((part for part in message.parts if isinstance(part, ToolCall)), None)
        if (
            first is not None
            and not _is_sealed_call(first)
            and not any(_has_seal(part, form) for part in message.parts)
        ):
            yield index


def _is_sealed_call(call: ToolCall) -> bool:
    return split_signature(call.id)[1] is not None or bool(call.extra and "extra_content" in call.extra)


def _has_seal(part: Part, form: str) -> bool:
    return isinstance(part, Reasoning) and part.format == form and _is_sealed(part)


def _is_sealed(block: Reasoning) -> bool:
    return bool(block.signature or block.data)


def _blocks_of(deltas: list[ReasoningDelta]) -> list[Reasoning]:
    """Return the blocks that an answer's thinking came in, each whole."""
    by_block: dict[int, list[ReasoningDelta]] = {}
    for delta in deltas:
        by_block.setdefault(delta.block, []).append(delta)
    return [
        Reasoning(
            text="".join(delta.text for delta in pieces),
            summary=pieces[0].summary,
            **{
                name: next((value for piece in reversed(pieces) if (value := getattr(piece, name)) is not None), None)
                for name in ("signature", "data", "id", "format")
            },
        )
        for pieces in by_block.values()
    ]


def _read(answer: str | bytes | None) -> list[Reasoning]:
    """Return the blocks of what the store has; none where it has nothing, or nothing that can be read."""
    if not answer:
        return []
    try:
        return _decode(decrypt(answer.encode() if isinstance(answer, str) else answer))
    except (UnreadableSecretError, msgspec.MsgspecError) as error:
        log.warning("seal_store.unreadable", error=type(error).__name__)
        return []
