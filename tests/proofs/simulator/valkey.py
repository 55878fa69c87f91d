"""A double of Valkey in memory: the commands that admission and settlement send, and real Lua for their scripts.

It answers what the server answers on the wire (RESP3), so the client's own methods and parsers stay in use. Its clock
stands still until it is moved. `test_doubles.py` compares it with the server.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any, TypeVar

from lupa.luajit21 import LuaRuntime
from redis.exceptions import NoScriptError, ResponseError

StreamId = tuple[int, int]
_WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


class Hash(dict[str, str]):
    """A hash: fields and their values."""


class SortedSet(dict[str, float]):
    """A sorted set: members and their scores."""

    def ordered(self) -> list[tuple[str, float]]:
        """Return members and scores by score, then by member."""
        return sorted(self.items(), key=lambda one: (one[1], one[0]))


@dataclass
class Pending:
    """A message that a consumer has not acknowledged: since when, in seconds, and how often it was delivered."""

    consumer: str
    since: float
    deliveries: int


@dataclass
class Group:
    """A consumer group: the last message it was given, and the unacknowledged ones."""

    last: StreamId
    pending: dict[StreamId, Pending] = field(default_factory=dict)


@dataclass
class Stream:
    """A stream: its entries in the order of their ids, and its groups."""

    last: StreamId = (0, 0)
    entries: dict[StreamId, list[str]] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)


Kind = TypeVar("Kind", Hash, SortedSet, Stream, list[str])


class Valkey:
    """The store: `execute` runs one command. Each method in capitals is the command of its name."""

    def __init__(self, now: float) -> None:
        self.now = now
        self._data: dict[str, Any] = {}
        self._expires: dict[str, float] = {}
        self._scripts = Scripts(self.execute)
        self._commands = {name.replace("_", " "): getattr(self, name) for name in dir(self) if name.isupper()}

    def execute(self, name: str, *args: object) -> Any:
        """Run a command; return its answer on the wire. Raises ResponseError."""
        if (command := self._commands.get(name)) is None:
            raise NotImplementedError(f"The double of Valkey lacks {name}")
        return command(*[one if type(one) is str else _text(one) for one in args])

    def _find(self, key: str, kind: type[Kind]) -> Kind | None:
        """Return the value of a key, None without one."""
        if key in self._expires and self._expires[key] <= self.now:
            self._drop(key)
        value = self._data.get(key)
        if value is not None and type(value) is not kind:
            raise ResponseError(_WRONG_TYPE)
        return value

    def _make(self, key: str, kind: type[Kind]) -> Kind:
        value = self._find(key, kind)
        if value is None:
            value = self._data[key] = kind()
        return value

    def _drop(self, key: str) -> bool:
        self._expires.pop(key, None)
        return self._data.pop(key, None) is not None

    def _drop_if_empty(self, key: str, value: Hash | SortedSet | list[str]) -> None:
        if not value:
            self._drop(key)

    def _is_there(self, key: str) -> bool:
        if key in self._expires and self._expires[key] <= self.now:
            self._drop(key)
        return key in self._data

    # --- keys and texts

    def FLUSHALL(self) -> str:
        self._data.clear()
        self._expires.clear()
        return "OK"

    def TIME(self) -> list[str]:
        seconds = math.floor(self.now)
        return [str(seconds), str(int((self.now - seconds) * 1e6))]

    def EXISTS(self, *keys: str) -> int:
        return sum(map(self._is_there, keys))

    def DEL(self, *keys: str) -> int:
        return sum(self._is_there(key) and self._drop(key) for key in keys)

    def EXPIRE(self, key: str, seconds: str) -> int:
        return self.EXPIREAT(key, str(self.now + int(seconds)))

    def EXPIREAT(self, key: str, moment: str) -> int:
        if not self._is_there(key):
            return 0
        self._expires[key] = float(moment)
        return 1

    def SCAN(self, _cursor: str, _match: str, pattern: str, *_count: str) -> list[Any]:
        prefix, star = pattern[:-1], pattern[-1:]
        if star != "*" or set(prefix) & set("*?[\\"):
            raise NotImplementedError("The double of Valkey scans by prefixes only")
        return ["0", [key for key in list(self._data) if key.startswith(prefix) and self._is_there(key)]]

    def GET(self, key: str) -> str | None:
        if not self._is_there(key):
            return None
        if type(value := self._data[key]) is not str:
            raise ResponseError(_WRONG_TYPE)
        return value

    def SET(self, key: str, value: str, *options: str) -> str | None:
        if "NX" in options and self._is_there(key):
            return None
        self._drop(key)
        self._data[key] = value
        if "EX" in options:
            self.EXPIRE(key, options[options.index("EX") + 1])
        return "OK"

    # --- hashes

    def HGET(self, key: str, name: str) -> str | None:
        return (self._find(key, Hash) or {}).get(name)

    def HMGET(self, key: str, *names: str) -> list[str | None]:
        known = self._find(key, Hash) or {}
        return [known.get(name) for name in names]

    def HGETALL(self, key: str) -> dict[str, str]:
        return dict(self._find(key, Hash) or {})

    def HVALS(self, key: str) -> list[str]:
        return list((self._find(key, Hash) or {}).values())

    def HLEN(self, key: str) -> int:
        return len(self._find(key, Hash) or ())

    def HSET(self, key: str, *pairs: str) -> int:
        known = self._make(key, Hash)
        before = len(known)
        known.update(zip(pairs[::2], pairs[1::2], strict=True))
        return len(known) - before

    def HDEL(self, key: str, *names: str) -> int:
        if (known := self._find(key, Hash)) is None:
            return 0
        gone = sum(known.pop(name, None) is not None for name in names)
        self._drop_if_empty(key, known)
        return gone

    def HINCRBY(self, key: str, name: str, more: str) -> int:
        known = self._find(key, Hash) or Hash()
        try:
            total = int(known.get(name, "0")) + int(more)
        except ValueError:
            raise ResponseError("hash value is not an integer") from None
        self.HSET(key, name, str(total))
        return total

    # --- lists

    def LPUSH(self, key: str, *values: str) -> int:
        known = self._make(key, list)
        known[:0] = reversed(values)
        return len(known)

    def LRANGE(self, key: str, first: str, last: str) -> list[str]:
        return _slice(self._find(key, list) or [], first, last)

    def LTRIM(self, key: str, first: str, last: str) -> str:
        if (known := self._find(key, list)) is not None:
            known[:] = _slice(known, first, last)
            self._drop_if_empty(key, known)
        return "OK"

    # --- sorted sets

    def ZADD(self, key: str, *args: str) -> int:
        is_new_only, is_known_only = args[0] == "NX", args[0] == "XX"
        pairs = args[1:] if is_new_only or is_known_only else args
        known, added = self._find(key, SortedSet) or SortedSet(), 0
        for score, member in zip(pairs[::2], pairs[1::2], strict=True):
            is_new = member not in known
            if not (is_known_only if is_new else is_new_only):
                known[member] = float(score)
                added += is_new
        if known:
            self._data[key] = known
        return added

    def ZREM(self, key: str, *members: str) -> int:
        if (known := self._find(key, SortedSet)) is None:
            return 0
        gone = sum(known.pop(member, None) is not None for member in members)
        self._drop_if_empty(key, known)
        return gone

    def ZSCORE(self, key: str, member: str) -> float | None:
        return (self._find(key, SortedSet) or {}).get(member)

    def ZCARD(self, key: str) -> int:
        return len(self._find(key, SortedSet) or ())

    def ZRANGE(self, key: str, first: str, last: str, *options: str) -> list[Any]:
        known = self._find(key, SortedSet) or SortedSet()
        found = _slice(known.ordered(), first, last)
        return [list(one) for one in found] if options else [member for member, _ in found]

    def ZRANGEBYSCORE(self, key: str, lowest: str, highest: str) -> list[str]:
        known = self._find(key, SortedSet) or SortedSet()
        lowest_key, highest_key = _bound(lowest, 1), _bound(highest, -1)
        return [member for member, score in known.ordered() if lowest_key <= (score, 0) <= highest_key]

    def ZREMRANGEBYSCORE(self, key: str, lowest: str, highest: str) -> int:
        members = self.ZRANGEBYSCORE(key, lowest, highest)
        return self.ZREM(key, *members) if members else 0

    # --- streams

    def XADD(self, key: str, identifier: str, *fields: str) -> str:
        stream = self._make(key, Stream)
        if identifier == "*":
            milliseconds = int(self.now * 1000)
            new = max((milliseconds, 0), (stream.last[0], stream.last[1] + 1))
        else:
            new = _stream_id(identifier)
            if new <= stream.last:
                raise ResponseError("The ID specified in XADD is equal or smaller than the target stream top item")
        stream.entries[new], stream.last = list(fields), new
        return _id_text(new)

    def XLEN(self, key: str) -> int:
        stream = self._find(key, Stream)
        return 0 if stream is None else len(stream.entries)

    def XRANGE(self, key: str, first: str, last: str, *options: str) -> list[Any]:
        stream = self._find(key, Stream)
        if stream is None:
            return []
        low = (0, 0) if first == "-" else _stream_id(first)
        ids = [one for one in stream.entries if low <= one and (last == "+" or one <= _stream_id(last))]
        return [[_id_text(one), list(stream.entries[one])] for one in (ids[: int(options[1])] if options else ids)]

    def XDEL(self, key: str, *ids: str) -> int:
        stream = self._find(key, Stream)
        return 0 if stream is None else sum(stream.entries.pop(_stream_id(one), None) is not None for one in ids)

    def XGROUP_CREATE(self, key: str, name: str, since: str, *options: str) -> str:
        stream = self._find(key, Stream)
        if stream is None and "MKSTREAM" not in options:
            raise ResponseError(
                "The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the "
                "MKSTREAM option to create an empty stream automatically."
            )
        stream = self._make(key, Stream)
        if name in stream.groups:
            raise ResponseError("BUSYGROUP Consumer Group name already exists")
        stream.groups[name] = Group(stream.last if since == "$" else _stream_id(since))
        return "OK"

    def XREADGROUP(self, *args: str) -> dict[str, Any] | None:
        _group, name, consumer, _count, count, _streams, key, since = args
        stream, group = self._group_of(key, name, " in XREADGROUP with GROUP option")
        if since == ">":
            found = [one for one in stream.entries if one > group.last][: int(count)]
            for one in found:
                group.pending[one], group.last = Pending(consumer, self.now, 1), one
            return {key: [[_id_text(one), list(stream.entries[one])] for one in found]} if found else None
        after = _stream_id(since)
        own = [one for one, state in sorted(group.pending.items()) if state.consumer == consumer and one > after]
        history: list[Any] = []
        for one in own[: int(count)]:
            if one in stream.entries:
                group.pending[one].since = self.now
                group.pending[one].deliveries += 1
                history.append([_id_text(one), list(stream.entries[one])])
            else:
                history.append([_id_text(one), None])
        return {key: history}

    def XACK(self, key: str, name: str, *ids: str) -> int:
        stream = self._find(key, Stream)
        group = None if stream is None else stream.groups.get(name)
        return 0 if group is None else sum(group.pending.pop(_stream_id(one), None) is not None for one in ids)

    def XPENDING(self, key: str, name: str, _first: str, _last: str, count: str) -> list[Any]:
        _, group = self._group_of(key, name)
        return [
            [_id_text(one), state.consumer, round((self.now - state.since) * 1000), state.deliveries]
            for one, state in sorted(group.pending.items())[: int(count)]
        ]

    def XCLAIM(self, key: str, name: str, consumer: str, min_idle: str, *rest: str) -> list[Any]:
        stream, group = self._group_of(key, name)
        ids = [_stream_id(one) for one in rest if "-" in one]
        since = self.now - int(rest[rest.index("IDLE") + 1]) / 1000 if "IDLE" in rest else self.now
        claimed: list[Any] = []
        for one in ids:
            if one not in stream.entries:
                group.pending.pop(one, None)
            elif one in group.pending and (self.now - group.pending[one].since) * 1000 >= int(min_idle):
                claimed.append(self._claim(stream, group, one, consumer, since, is_delivery="JUSTID" not in rest))
        return claimed

    def XAUTOCLAIM(self, key: str, name: str, consumer: str, min_idle: str, start: str, _c: str, count: str) -> Any:
        stream, group = self._group_of(key, name)
        claimed: list[Any] = []
        gone: list[str] = []
        following: StreamId = (0, 0)
        for one in sorted(identifier for identifier in group.pending if identifier >= _stream_id(start)):
            if len(claimed) + len(gone) == int(count):
                following = one
                break
            if one not in stream.entries:
                del group.pending[one]
                gone.append(_id_text(one))
            elif (self.now - group.pending[one].since) * 1000 >= int(min_idle):
                claimed.append(self._claim(stream, group, one, consumer, self.now, is_delivery=True))
        return [_id_text(following), claimed, gone]

    def _group_of(self, key: str, name: str, where: str = "") -> tuple[Stream, Group]:
        stream = self._find(key, Stream)
        if stream is None or name not in stream.groups:
            raise ResponseError(f"NOGROUP No such key '{key}' or consumer group '{name}'{where}")
        return stream, stream.groups[name]

    def _claim(
        self, stream: Stream, group: Group, one: StreamId, consumer: str, since: float, *, is_delivery: bool
    ) -> Any:
        state = group.pending[one]
        state.consumer, state.since = consumer, since
        if not is_delivery:
            return _id_text(one)
        state.deliveries += 1
        return [_id_text(one), list(stream.entries[one])]

    # --- scripts

    def SCRIPT_LOAD(self, source: str) -> str:
        return self._scripts.load(source)

    def EVAL(self, source: str, count: str, *args: str) -> Any:
        return self._scripts.run(self._scripts.load(source), args[: int(count)], args[int(count) :])

    def EVALSHA(self, digest: str, count: str, *args: str) -> Any:
        return self._scripts.run(digest, args[: int(count)], args[int(count) :])


class Scripts:
    """Lua scripts by digest, and what the server gives them: `redis.call` and `cjson.decode`."""

    def __init__(self, execute: Callable[..., Any]) -> None:
        self._execute = execute
        self._lua = LuaRuntime(unpack_returned_tuples=True, register_eval=False, register_builtins=False)
        self._known: dict[str, Any] = {}
        self._names = self._lua.globals()
        self._names.redis = self._lua.table_from({"call": self._call})
        self._names.cjson = self._lua.table_from({"decode": lambda text: self._to_lua(json.loads(text))})
        # The answer's items, or the answer itself and its kind.
        self._run = self._lua.eval(
            "function(script) local answer = script() "
            "if type(answer) == 'table' then return true, unpack(answer) end return false, answer end"
        )

    def load(self, source: str) -> str:
        """Compile a script; return its digest."""
        digest = sha1(source.encode(), usedforsecurity=False).hexdigest()
        if digest not in self._known:
            self._known[digest] = self._lua.compile(source)
        return digest

    def run(self, digest: str, keys: Sequence[str], args: Sequence[str]) -> Any:
        """Run a script; return its answer. Raises NoScriptError, and what its commands raise."""
        if (script := self._known.get(digest)) is None:
            raise NoScriptError("No matching script. Please use EVAL.")
        self._names.KEYS, self._names.ARGV = self._lua.table_from(keys), self._lua.table_from(args)
        answer = self._run(script)
        if answer is True:
            return []
        is_list, *items = answer
        return _list_from_lua(items) if is_list else _from_lua(items[0])

    def _call(self, name: str, *args: object) -> Any:
        return self._to_lua(self._execute(name, *args))

    def _to_lua(self, value: Any) -> Any:
        """Return a value as scripts see it: nothing is false, and a list is a table."""
        if value is None:
            return False
        if isinstance(value, float):
            return f"{value:.17g}"
        if isinstance(value, list):
            return self._lua.table_from([self._to_lua(one) for one in value])
        if isinstance(value, dict):
            return self._lua.table_from({name: self._to_lua(one) for name, one in value.items()})
        return value


def _from_lua(value: Any) -> Any:
    """Return a script's value as the server answers it: numbers lose their fraction, false is nothing, true is 1."""
    if value is None or value is False:
        return None
    if isinstance(value, (bool, int, float)):
        return int(value)
    return value if isinstance(value, str) else _list_from_lua(list(value.values()))


def _list_from_lua(items: list[Any]) -> list[Any]:
    """Return the values of a table up to the first that is missing."""
    end = items.index(None) if None in items else len(items)
    return [_from_lua(one) for one in items[:end]]


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode()
    return repr(value) if isinstance(value, float) else str(value)


def _slice(items: list[Any], first: str, last: str) -> list[Any]:
    """Return the items between two places, both included; negative ones count from the end."""
    start, end = int(first), int(last)
    start = max(start + len(items), 0) if start < 0 else start
    end = end + len(items) if end < 0 else end
    return items[start : end + 1]


def _bound(text: str, beyond: int) -> tuple[float, int]:
    """Return a bound of scores, which are compared as (score, 0); an excluded one is beyond its own score."""
    return float(text.removeprefix("(")), beyond if text.startswith("(") else 0


def _stream_id(text: str) -> StreamId:
    milliseconds, _, sequence = text.partition("-")
    return int(milliseconds), int(sequence or 0)


def _id_text(identifier: StreamId) -> str:
    return f"{identifier[0]}-{identifier[1]}"
