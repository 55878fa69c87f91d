"""Outbox: the stream in which finished requests wait for settlement, with redelivery, and a disk spool beside it.

The spool is for times when Redis accepts no record. A record is in one of the two, or on its way to the stream and out
of this process, before the last byte of its answer leaves (docs/adr/0079); one that neither accepts stays in memory and
is retried until one does (docs/adr/0087). A record may be in the stream twice; settlement writes each id once.

The retransmission buffer has copies of pushed records that are not known to be settled, in one block of memory, used in
turn: to keep each where it was made would give the next request new memory for its own, which took 1 to 5 % of a busy
worker's time.

A record's JSON and what it moves are here too: the sender and the settler need both, and the settler loads nothing of
how requests are answered.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

import gevent
import msgspec
import structlog
from gevent.pool import Group
from redis.exceptions import RedisError, ResponseError

from apps.billing.ledger import Charge
from apps.billing.reservations import NOTE_LUA, SettledHold
from apps.billing.worker_leases import notes_key
from apps.gateway.metrics import RECORDS_REPLAYED, RECORDS_SPOOLED
from apps.gateway.settlement import spool
from apps.gateway.settlement.record_backlog import BACKLOG
from apps.kernel.concurrency.cached_setting import CachedSetting
from apps.kernel.money import ZERO
from apps.kernel.valkey.redis import (
    SHARD_COUNT,
    SHARDS,
    LuaScript,
    client,
    flush,
    money_keys,
    server_of_shard,
    shard_of,
)
from apps.kernel.valkey.shards import ask_each, ask_those_there
from apps.logs.entry import Entry
from apps.organizations.models import Mode

# Bytes of records that a process keeps; beyond, the oldest go. The settler usually has a record within half a second.
ROOM: Final = 16 * 1024 * 1024


class PushedRecord(NamedTuple):
    """A record, the worker that held its reservation, and when it was pushed, monotonic."""

    pushed_at: float
    worker: str
    record: bytes


class RetransmissionBuffer:
    """The records of one process, in the order in which they were pushed."""

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        # Made with the first record: few processes push any.
        self._block = bytearray()
        # When each was pushed, its worker, and its bytes' first and end, counted as if the block had no end.
        self._places: deque[tuple[float, str, int, int]] = deque()
        self._end = 0
        # Records taken and put back, older than all in the block; and the bytes of both.
        self._returned: deque[PushedRecord] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._returned) + len(self._places)

    def add(self, worker: str, record: bytes) -> None:
        """Keep a record that has just been pushed; one that is larger than all the room is not kept."""
        room, first = self._room, self._end
        if len(record) > room:
            return
        if not self._block:
            self._block = bytearray(room)
        if first % room + len(record) > room:
            # It has to be in one piece.
            first += room - first % room
        end = first + len(record)
        places = self._places
        while places and places[0][2] < end - room:
            while self._returned:
                self._drop_oldest_returned()
            self._drop_oldest_place()
        self._block[first % room : first % room + len(record)] = record
        places.append((time.monotonic(), worker, first, end))
        self._end = end
        self._size += len(record)
        while self._returned and self._size > room:
            self._drop_oldest_returned()

    def drop_before(self, moment: float) -> None:
        """Drop the records pushed before a moment of the monotonic clock."""
        while self._returned and self._returned[0].pushed_at < moment:
            self._drop_oldest_returned()
        while self._places and self._places[0][0] < moment:
            self._drop_oldest_place()

    def take(self) -> deque[PushedRecord]:
        """Remove and return all records, oldest first."""
        taken, self._returned = self._returned, deque()
        for pushed_at, worker, first, end in self._places:
            start = first % self._room
            taken.append(PushedRecord(pushed_at, worker, bytes(self._block[start : start + end - first])))
        self._places.clear()
        self._size = 0
        return taken

    def put_back(self, records: deque[PushedRecord]) -> None:
        """Keep records again that were taken and could not be pushed."""
        self._returned.extendleft(reversed(records))
        self._size += sum(len(one.record) for one in records)

    def _drop_oldest_returned(self) -> None:
        self._size -= len(self._returned.popleft().record)

    def _drop_oldest_place(self) -> None:
        _, _, first, end = self._places.popleft()
        self._size -= end - first


BUFFER = RetransmissionBuffer()


log = structlog.get_logger(__name__)

# A stream for each shard.
STREAMS, GROUP = money_keys("outbox"), "settle"
_PUSH = LuaScript(
    NOTE_LUA
    + """
    -- KEYS: the stream, and for a request that holds a reservation: its worker's notes, the requests in flight, and
    --       the balances it is held on
    -- ARGV: worker, record; the request's id, the fields that its note keeps, and its amount, which the balances named
    --       in them go on holding; with limits that count no money: a letter for each, of its measure, or another where
    --       it does not count the request, and the tokens of the prompt and of the answer
    redis.call('XADD', KEYS[1], '*', 'worker', ARGV[1], 'record', ARGV[2])
    if not KEYS[2] then return end
    redis.call('ZREM', KEYS[3], ARGV[3])
    local note = redis.call('HGET', KEYS[2], ARGV[3])
    local fields = note and string.find(note, '"holds"', 1, true)
    -- Pushed again because the answer was lost on its way: it was given back already, or even released.
    if not note or string.find(note, '^"holds":%b[],"payload":""', fields) then return end
    -- By what the note says: the worker may not know of its last extension.
    local held, written = string.match(note, '^{"amount":"(%d+)","written":"(%d+)"')
    for i = 4, #KEYS do
      local stays = string.find(ARGV[4], '"' .. KEYS[i] .. '"', 1, true) and ARGV[5] or 0
      redis.call('HINCRBY', KEYS[i], 'held', string.format('%.0f', stays - held))
    end
    local counts, letters, texts = {}, ARGV[6], {}
    if letters then
      local used = {r = '1', t = string.format('%.0f', ARGV[7] + ARGV[8]), i = ARGV[7], o = ARGV[8]}
      local known = string.find(note, '"counts"', 1, true)
      for k, one in ipairs(cjson.decode(string.sub(note, known + 9, fields - 2))) do
        local amount = used[string.sub(letters, k, k)] or '0'
        local more = amount - one[2] - one[3] * written
        if more ~= 0 then
          local text = texts[more] or string.format('%.0f', more)
          texts[more] = text
          redis.call('HINCRBY', one[1], 'held', text)
        end
        counts[k] = write_count(one[1], amount, '0')
      end
    end
    redis.call('HSET', KEYS[2], ARGV[3], write_note(ARGV[5], '0', counts, ARGV[4]))
    """
)
# To learn where the command has its keys the client would ask some node of the cluster, which may be the one away.
_READ = LuaScript(
    "return redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', ARGV[3], 'STREAMS', KEYS[1], ARGV[4])"
)
_ACKNOWLEDGE = LuaScript(
    """
    -- KEYS: the stream; ARGV: the group, and for each message its id and the beginning of its record
    for i = 2, #ARGV, 2 do
      local found = redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i])[1]
      if not found then
        redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
      -- Another record has the id if the store lost its data since, and its clock is behind that of the one before.
      elseif string.sub(found[2][4], 1, #ARGV[i + 1]) == ARGV[i + 1] then
        redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
        redis.call('XDEL', KEYS[1], ARGV[i])
      end
    end
    """
)
# Characters of a record that tell it from others: they contain the request's id.
_RECORD_START: Final = 128
# Greenlets that push records which the store may not have received.
_RETRIES = Group()
_WAIT_FOR_STORE = CachedSetting("RECORD_BEFORE_ANSWER")
# A message that its reader has not finished with for so long (milliseconds) is handed to another.
ABANDONED_AFTER = 10_000
# Milliseconds after which a consumer that asks for nothing is one of the past: a living one asks every second.
FORGOTTEN_AFTER = 86_400_000
# A message as the store tells it: its id and its fields.
StreamEntry = tuple[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """A record on its way: its place in a shard's stream, the worker that held its reservation, the record as JSON."""

    id: str
    worker: str
    record: str
    shard: int = 0


def enqueue(worker: str, record: bytes, settled: SettledHold | None = None) -> None:
    """Enqueue a record without waiting for the store: from here on it survives the death of any one process.

    When this returns it has left this process: the store gets it though this one may die, and this one keeps it, to
    push it again, until the store has said that it has it. With `VALKEY_SYNC=always` that is waited for.
    """
    if _WAIT_FOR_STORE.value:
        _deliver(worker, record, settled)
        return
    try:
        _PUSH.send_nowait(*_push_arguments(worker, record, settled), partial(_push_again, worker, record, settled))
    except RedisError:
        _deliver(worker, record, settled)
    else:
        BUFFER.add(worker, record)


def _push_again(worker: str, record: bytes, settled: SettledHold | None, error: RedisError) -> None:
    log.info("outbox.pushed_again", error=type(error).__name__)
    _RETRIES.spawn(_deliver, worker, record, settled)


def _deliver(worker: str, record: bytes, settled: SettledHold | None) -> None:
    """Push a record; one that neither the store nor the disk takes stays in memory and is tried again. Never fails."""
    try:
        push_tracked(worker, record, settled)
    except Exception as error:  # noqa: BLE001 - whatever it is: the record must not go down with it
        BACKLOG.add(partial(push_tracked, worker, record, settled), record, type(error).__name__)


def push_tracked(worker: str, record: bytes, settled: SettledHold | None = None) -> None:
    """Push a record, and keep it to be pushed again should the store lose it (docs/adr/0079). Raises OSError."""
    push(worker, record, settled)
    BUFFER.add(worker, record)


def push(worker: str, record: bytes, settled: SettledHold | None = None) -> None:
    """Put a record where it survives the death of any one process, and return once it is there.

    In the same step its request is no longer in flight, and holds no more than it cost (`settled`). Raises OSError when
    neither the store nor the disk takes it.
    """
    try:
        _PUSH.run_batched(*_push_arguments(worker, record, settled))
    except RedisError as error:
        spool.add(worker, record)
        log.warning("outbox.spooled", error=type(error).__name__)
        RECORDS_SPOOLED.inc()


def _push_arguments(
    worker: str, record: bytes, settled: SettledHold | None
) -> tuple[list[str], list[str | int | bytes]]:
    """Return the keys and arguments of the push script."""
    shard = shard_of_record(record) if settled is None else settled.hold.shard
    keys: list[str] = [STREAMS[shard]]
    args: list[str | int | bytes] = [worker, record]
    if settled is not None:
        hold = settled.hold
        keys += (notes_key(hold.worker, shard), hold.flight, *hold.balances)
        args += (hold.id, settled.note, settled.amount)
        if hold.limits is not None and hold.limits.has_counts:
            use = settled.use
            args += (use.letters, use.input_tokens, use.output_tokens)
    return keys, args


def flush_pending(seconds: float) -> None:
    """Wait, at most so many seconds, until all enqueued records are in the stream or the spool; log the others."""
    with suppress(gevent.Timeout), gevent.Timeout(seconds):
        with suppress(RedisError):
            flush()
        _RETRIES.join()
        BACKLOG.drain()
    BACKLOG.dump_to_log()


def _stream() -> Any:
    """Return the client; the library's types of stream answers cover every protocol version and fit none."""
    return client()


# --- the settling side


def prepare() -> None:
    """Make the streams and their groups. Raises RedisError."""
    ask_each(prepare_shard)


def prepare_shard(shard: int) -> None:
    """Make a shard's stream and its group. Raises RedisError."""
    try:
        client().xgroup_create(STREAMS[shard], GROUP, id="0", mkstream=True)
    except ResponseError as error:
        if "BUSYGROUP" not in str(error):
            raise


def read_batch(reader: str, count: int, wait_ms: int, *, left: bool = True, shard: int = 0) -> list[OutboxMessage]:
    """Return messages of a shard to settle: first those that this or a dead consumer `left` pending, then new ones.

    With `wait_ms` of 0 nothing is waited for. Raises RedisError.
    """
    stream = STREAMS[shard]
    found: list[StreamEntry] = []
    if left:
        found = _stream().xautoclaim(stream, GROUP, reader, ABANDONED_AFTER, "0-0", count=count)[1]
        found = found or claim_pending(stream, GROUP, reader, ABANDONED_AFTER / 1000)
        found = found or _read(stream, reader, "0", count)
    found = found or _read(stream, reader, ">", count, block=wait_ms or None)
    return [
        OutboxMessage(identifier, fields["worker"], fields["record"], shard) for identifier, fields in found if fields
    ]


def _read(stream: str, reader: str, since: str, count: int, block: int | None = None) -> list[StreamEntry]:
    """Return entries of a stream: the reader's own unfinished ones (`0`), or new ones (`>`)."""
    if block is None and SHARD_COUNT > 1:
        answer = _READ([stream], [GROUP, reader, count, since])
        return [(identifier, _fields_of(texts or [])) for identifier, texts in answer[0][1]] if answer else []
    answer = _stream().xreadgroup(GROUP, reader, {stream: since}, count=count, block=block)
    return answer[0][1] if answer else []


def _fields_of(texts: list[str]) -> dict[str, str]:
    return dict(zip(texts[::2], texts[1::2], strict=True))


def forget_readers(silent_for: int = FORGOTTEN_AFTER) -> None:
    """Forget the consumers that have asked for nothing for so many milliseconds and have nothing. Raises RedisError."""
    for shard, stream in enumerate(STREAMS):
        prepare_shard(shard)
        for one in _stream().xinfo_consumers(stream, GROUP):
            if not one["pending"] and one["idle"] >= silent_for:
                _stream().xgroup_delconsumer(stream, GROUP, one["name"])


def acknowledge(messages: Sequence[OutboxMessage]) -> None:
    """Acknowledge settled messages and remove them from their streams. Raises RedisError."""
    settled: dict[int, list[str | int | bytes]] = {}
    for message in messages:
        settled.setdefault(message.shard, [GROUP]).extend((message.id, message.record[:_RECORD_START]))
    for shard, arguments in settled.items():
        _ACKNOWLEDGE([STREAMS[shard]], arguments)


def depth() -> tuple[int, float]:
    """Return how many records wait and the age of the oldest in seconds, of all shards. Raises RedisError."""
    depths = ask_each(depth_of)
    return sum(waiting for waiting, _ in depths), max(age for _, age in depths)


def depth_of(shard: int) -> tuple[int, float]:
    """Return how many records wait in a shard and the age of the oldest in seconds. Raises RedisError."""
    stream = _stream()
    first = stream.xrange(STREAMS[shard], count=1)
    if not first:
        return 0, 0.0
    oldest = int(first[0][0].split("-")[0]) / 1000
    return int(stream.xlen(STREAMS[shard])), max(float(server_of_shard(shard).time()[0]) - oldest, 0.0)


# --- the spool


def replay_spool() -> int:
    """Move spooled records of all processes into the stream; return how many. Stops where Redis fails again."""
    moved = 0

    def add(worker: str, record: bytes) -> None:
        nonlocal moved
        client().xadd(STREAMS[shard_of_record(record)], {"worker": worker, "record": record})
        BUFFER.add(worker, record)
        moved += 1

    try:
        spool.move(add)
    except RedisError as error:
        log.warning("outbox.replay_stopped", error=type(error).__name__)
    except OSError as error:
        log.warning("outbox.spool_failed", error=error.strerror)
    if moved:
        RECORDS_REPLAYED.inc(moved)
        log.info("outbox.replayed", records=moved)
    return moved


class _Owned(msgspec.Struct):
    """The fields read from a record."""

    organization_id: UUID


_decode = msgspec.json.Decoder(_Owned).decode


def shard_of_record(record: bytes | str) -> int:
    """Return the shard of a record's organization; the first for one that cannot be read, which the settler puts
    aside."""
    if SHARD_COUNT == 1:
        return 0
    try:
        return shard_of(_decode(record).organization_id)
    except (msgspec.MsgspecError, UnicodeError):
        return 0


# Messages that are looked at, the oldest first.
_MAX_MESSAGES = 20
# By stream; by message, reader and how often it was handed out: when it was first seen there, on the monotonic clock.
# The store's own clock may be set back: then it counts a dead reader's messages as in progress for as long.
_seen_in: defaultdict[str, dict[tuple[str, str, int], float]] = defaultdict(dict)


def claim_pending(stream: str, group: str, reader: str, after: float) -> list[tuple[str, dict[str, str]]]:
    """Claim and return the messages that other consumers have held, unchanged, for so many seconds. Raises RedisError.

    A reader that works on one of them after all does nothing that may not be done twice.
    """
    store: Any = client()
    now = time.monotonic()
    pending = store.xpending_range(stream, group, "-", "+", _MAX_MESSAGES)
    others = {
        (str(one["message_id"]), str(one["consumer"]), int(one["times_delivered"]))
        for one in pending
        if one["consumer"] != reader
    }
    seen = _seen_in[stream]
    for one in seen.keys() - others:
        del seen[one]
    for one in others:
        seen.setdefault(one, now)
    stuck = sorted(one[0] for one, since in seen.items() if now - since >= after)
    return list(store.xclaim(stream, group, reader, 0, stuck)) if stuck else []


# How often each shard is searched for what a consumer left unfinished, and how long to wait where nothing is to be
# read, in seconds.
SEARCH_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.1


class OutboxReader:
    """One consumer of all streams, in turn, so that a busy shard holds up no other. `name` is its own.

    A cluster has no command that waits on streams of several slots, so the reader searches now and then for the streams
    with entries.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # The shard whose turn it is.
        self._turn = 0
        self.search_again()

    def search_again(self) -> None:
        """Search for unfinished records with the next look, as at first and after a failure."""
        self._search_at = [0.0] * SHARD_COUNT

    def read(self, count: int, wait_ms: int) -> list[OutboxMessage]:
        """Return the next messages, at most so many, after a while where there are none.

        Returns the records of the shards that answer. Raises RedisError where one does not and the others have nothing.
        """
        if SHARD_COUNT == 1:
            return self._read(0, count, wait_ms)
        lengths, failure = _lengths()
        found: list[OutboxMessage] = []
        for shard in (*range(self._turn, SHARD_COUNT), *range(self._turn)):
            if not lengths.get(shard):
                continue
            try:
                found += self._read(shard, count - len(found), 0)
            except RedisError as error:
                log.warning("outbox.shard_not_read", shard=shard, error=type(error).__name__)
                self._search_at[shard] = 0.0
                failure = failure or error
            if len(found) >= count:
                self._turn = (shard + 1) % SHARD_COUNT
                break
        if not found:
            if failure is not None:
                raise failure
            time.sleep(min(_POLL_SECONDS, wait_ms / 1000))
        return found

    def _read(self, shard: int, count: int, wait_ms: int) -> list[OutboxMessage]:
        left = time.monotonic() >= self._search_at[shard]
        if left:
            prepare_shard(shard)
        messages = read_batch(self._name, count, wait_ms, left=left, shard=shard)
        if left and len(messages) < count:
            self._search_at[shard] = time.monotonic() + SEARCH_SECONDS
        return messages


def _lengths() -> tuple[dict[int, int], RedisError | None]:
    """Return how many messages each shard has that answers, and the first error of those that do not."""
    store: Any = client()
    pipe = store.pipeline(transaction=False)
    for stream in STREAMS:
        pipe.xlen(stream)
    try:
        return dict(zip(SHARDS, map(int, pipe.execute()), strict=True)), None
    except RedisError:
        # One server away fails all: each is asked by itself.
        answers, failure = ask_those_there(lambda shard: (shard, int(store.xlen(STREAMS[shard]))))
        return dict(answers), failure


# --- a record: its JSON, and what it moves

ENCODER: Final = msgspec.json.Encoder(uuid_format="canonical")


def encode(entry: Entry) -> bytes:
    """Return the record as JSON."""
    return ENCODER.encode(entry)


def charge_of(entry: Entry) -> Charge:
    """Return what a record moves: always the key's usage, the credits only when the service's credentials were used."""
    cost = entry.cost or ZERO
    return Charge(
        organization_id=entry.organization_id,
        api_key_id=entry.api_key_id,
        reference=entry.id,
        credits=-cost if entry.used_mode == Mode.CREDITS else ZERO,
        usage=cost,
        storage=entry.data_storage_cost or ZERO,
        is_held=_is_of_batch(entry.prices),
    )


def _is_of_batch(prices: Any) -> bool:
    """Return whether a provider's batch API answered; prices are a bill, or what JSON made of one."""
    share = prices.get("batch_share") if isinstance(prices, dict) else getattr(prices, "batch_share", None)
    return share is not None
