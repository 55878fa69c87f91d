"""The shared connection to the store, over a real one and over one that misbehaves."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha1
from typing import Any

import gevent
import pytest
from django.conf import settings
from gevent import socket as green
from gevent.monkey import get_original
from redis.connection import parse_url
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from apps.kernel.valkey import redis_multiplexer
from apps.kernel.valkey.redis import client
from apps.kernel.valkey.redis_multiplexer import RedisMultiplexer
from tests.support.hanging_names import wait_until

# The commands that the server receives, and how its line is cut, are about one server.
pytestmark = pytest.mark.single_server


class Wire:
    """The methods of the library's connection that the line needs, over a switching socket; counts what it sends."""

    sent: list[bytes]

    def __init__(self, address: Any = None) -> None:
        self._address = address
        self.sent = []

    def connect(self) -> None:
        where = parse_url(settings.REDIS_URL)
        path = self._address or where.get("path")
        family = green.AF_UNIX if path else green.AF_INET
        sock = green.socket(family, green.SOCK_STREAM)
        sock.connect(path or (where["host"], where["port"]))
        self._sock = _Counting(sock, self.sent)

    def disconnect(self) -> None:
        self._sock.close()


class _Counting:
    def __init__(self, sock: Any, sent: list[bytes]) -> None:
        self._below, self._sent = sock, sent
        # There is no other way to send past this one.
        self._sock = self

    def send(self, data: bytes) -> int:
        self._sent.append(data)
        return int(self._below.send(data))

    def sendall(self, data: bytes) -> None:
        self._sent.append(data)
        self._below.sendall(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)


class Line(RedisMultiplexer):
    """A line that remembers its wires."""

    def __init__(self, budget: float = 5.0, address: Any = None) -> None:
        self.wires: list[Wire] = []
        super().__init__(lambda: self.wires.append(Wire(address)) or self.wires[-1], budget)


@pytest.fixture
def line() -> Iterator[Line]:
    one = Line()
    yield one
    one.close()


def test_answers_find_whoever_asked(line: Line) -> None:
    greenlets = [gevent.spawn(line.execute, "ECHO", f"word {number}") for number in range(200)]
    gevent.joinall(greenlets, raise_error=True)
    assert [one.value for one in greenlets] == [f"word {number}" for number in range(200)]


def test_what_is_asked_at_the_same_time_leaves_together(line: Line) -> None:
    assert line.execute("PING") == "PONG"
    gevent.joinall([gevent.spawn(line.execute, "PING") for _ in range(50)], raise_error=True)
    (wire,) = line.wires
    assert [data.count(b"PING") for data in wire.sent] == [1, 50]


def test_a_refusal_is_for_whoever_asked_and_for_nobody_else(line: Line) -> None:
    bad, worse, good = (
        gevent.spawn(line.execute, *words) for words in (("NONSENSE",), ("EVALSHA", "0" * 40, 0), ("PING",))
    )
    gevent.joinall([bad, worse, good])
    assert isinstance(bad.exception, ResponseError)
    assert isinstance(worse.exception, NoScriptError)
    assert good.value == "PONG"


def test_a_connection_that_was_closed_meanwhile_is_opened_anew(line: Line) -> None:
    name = line.execute("CLIENT", "ID")
    client().execute_command("CLIENT", "KILL", "ID", name)
    assert line.execute("PING") == "PONG"
    assert len(line.wires) == 2


def test_who_waits_when_the_connection_is_lost_asks_once_more(line: Line) -> None:
    name = line.execute("CLIENT", "ID")
    waiting = gevent.spawn(line.execute, "BLPOP", "test:never", 1)
    gevent.sleep(0)
    client().execute_command("CLIENT", "KILL", "ID", name)
    assert waiting.get(timeout=5) is None
    assert len(line.wires) == 2


def test_a_store_that_hangs_costs_the_budget_and_its_late_answer_is_nobodys() -> None:
    line = Line(budget=0.2)
    hanging = gevent.spawn(line.execute, "BLPOP", "test:never", 2)
    gevent.sleep(0)
    behind = gevent.spawn(line.execute, "ECHO", "behind")
    gevent.joinall([hanging, behind], timeout=5)
    assert isinstance(hanging.exception, RedisTimeoutError)
    # It had waited no longer than its own budget, and is asked again on a new connection.
    assert behind.value == "behind"
    assert line.execute("ECHO", "after") == "after"
    line.close()


def test_a_store_that_is_away_is_an_error_at_once(tmp_path: Any) -> None:
    line = Line(address=str(tmp_path / "nowhere"))
    with pytest.raises(OSError):
        line.execute("PING")


def test_whoever_waits_is_told_when_the_line_is_closed(line: Line) -> None:
    line.execute("PING")
    waiting = gevent.spawn(line.execute, "BLPOP", "test:never", 1)
    gevent.sleep(0)
    line.close()
    # Again on a new connection, as after any loss.
    assert waiting.get(timeout=5) is None


def test_one_that_stops_waiting_leaves_the_others_their_answers(line: Line) -> None:
    line.execute("PING")
    leaver = gevent.spawn(line.execute, "ECHO", "left")
    stayer = gevent.spawn(line.execute, "ECHO", "stayed")
    gevent.sleep(0)
    leaver.kill()
    assert stayer.get(timeout=5) == "stayed"


def test_what_is_told_has_left_when_it_returns_and_is_done(line: Line) -> None:
    line.execute("PING")
    failures: list[object] = []
    line.send_nowait(("SET", "test:told", "1"), failures.append)
    assert [data.count(b"test:told") for data in line.wires[0].sent] == [0, 1]
    assert line.execute("GET", "test:told") == "1"
    assert failures == []


def test_what_is_told_at_the_same_time_leaves_in_one_piece_and_mixes_up_no_answers(line: Line) -> None:
    line.execute("PING")
    failures: list[object] = []

    def ask_and_tell(number: int) -> str:
        line.send_nowait(("ECHO", f"told {number}"), failures.append)
        return str(line.execute("ECHO", f"asked {number}"))

    asking = [gevent.spawn(ask_and_tell, number) for number in range(50)]
    gevent.joinall(asking, raise_error=True)
    assert [one.value for one in asking] == [f"asked {number}" for number in range(50)]
    pieces = line.wires[0].sent
    assert [piece.count(b"told") for piece in pieces if b"told" in piece] == [50]
    assert failures == []


def test_a_script_can_be_told_by_its_digest_to_a_store_that_has_just_started() -> None:
    source = "return redis.call('SET', 'test:script', ARGV[1])"
    client().script_flush()
    wires: list[Wire] = []
    line = RedisMultiplexer(lambda: wires.append(Wire()) or wires[-1], 5.0, [source])
    failures: list[Exception] = []
    line.send_nowait(("EVALSHA", sha1(source.encode()).hexdigest(), 0, "done"), failures.append)
    assert line.execute("GET", "test:script") == "done"
    assert failures == []
    line.close()


def test_of_what_is_told_a_refusal_is_heard_by_whoever_told_it(line: Line) -> None:
    failures: list[Exception] = []
    line.send_nowait(("EVALSHA", "0" * 40, 0), failures.append)
    line.send_nowait(("PING",), failures.append)
    assert line.execute("PING") == "PONG"
    assert [type(error) for error in failures] == [NoScriptError]


def test_of_what_is_told_the_loss_of_the_connection_is_heard(line: Line) -> None:
    name = line.execute("CLIENT", "ID")
    failures: list[Exception] = []
    line.send_nowait(("BLPOP", "test:never", 1), failures.append)
    client().execute_command("CLIENT", "KILL", "ID", name)
    assert line.execute("PING") == "PONG"
    assert [type(error) for error in failures] == [RedisConnectionError]


def test_a_store_that_does_not_answer_what_it_is_told_costs_the_budget() -> None:
    line = Line(budget=0.2)
    failures: list[Exception] = []
    line.send_nowait(("BLPOP", "test:never", 2), failures.append)
    assert failures == []
    wait_until(lambda: failures)
    assert [type(error) for error in failures] == [RedisTimeoutError]
    line.close()


def test_what_this_process_was_too_busy_for_is_not_taken_for_the_stores_silence() -> None:
    line = Line(budget=0.2)
    assert line.execute("PING") == "PONG"
    block = get_original("time", "sleep")

    def stay_busy() -> None:
        # Others have asked and nothing has left; then what has left is not read; both for longer than the budget.
        block(0.5)
        gevent.sleep(0)
        block(0.5)

    asking = [gevent.spawn(line.execute, "ECHO", str(number)) for number in range(3)]
    blocking = gevent.spawn(stay_busy)
    gevent.joinall([*asking, blocking], timeout=5)
    assert [one.value for one in asking] == ["0", "1", "2"]
    # Nor was the connection given up.
    assert len(line.wires) == 1
    line.close()


def test_a_store_that_takes_nothing_makes_whoever_tells_it_wait(tmp_path: Any) -> None:
    server = green.socket(green.AF_UNIX, green.SOCK_STREAM)
    server.bind(str(tmp_path / "deaf"))
    server.listen()
    line = Line(address=str(tmp_path / "deaf"))
    failures: list[Exception] = []
    telling = [
        gevent.spawn(line.send_nowait, words, failures.append)
        for words in (("SET", "test:large", "x" * 8_000_000), ("SET", "test:larger", "x" * 9_000_000))
    ]
    gevent.joinall(telling, timeout=0.1)
    assert [one.ready() for one in telling] == [False, False]
    (tmp_path / "deaf").unlink()
    line.close()
    gevent.joinall(telling, timeout=5)
    # Both learn it themselves: there is no store left to tell it to again.
    assert [isinstance(one.exception, OSError | RedisError) for one in telling] == [True, True]
    assert failures == []


def test_a_small_command_does_not_wait_for_a_large_one(tmp_path: Any) -> None:
    address = str(tmp_path / "deaf")
    server = green.socket(green.AF_UNIX, green.SOCK_STREAM)
    server.bind(address)
    server.listen()
    wires: list[Wire] = []

    def connect() -> Wire:
        # The first connection leads to a store that reads nothing.
        wires.append(Wire(None if wires else address))
        return wires[-1]

    line = RedisMultiplexer(connect, 5.0)
    failures: list[Exception] = []
    large = gevent.spawn(line.send_nowait, ("SET", "test:large", "x" * 8_000_000), failures.append)
    gevent.sleep(0)
    assert line.execute("PING") == "PONG"
    assert (len(wires), large.ready()) == (2, False)
    (tmp_path / "deaf").unlink()
    line.close()
    large.join(5)


def test_flush_waits_for_small_and_large_commands(line: Line) -> None:
    failures: list[Exception] = []
    line.send_nowait(("SET", "test:small", "x"), failures.append)
    line.send_nowait(("SET", "test:large", "x" * 200_000), failures.append)
    line.flush()
    assert client().strlen("test:large") == 200_000
    assert [wire.sent[-1].count(b"PING") for wire in line.wires] == [1, 1]
    assert failures == []


def test_unanswered_counts_small_commands_until_the_store_has_answered(line: Line) -> None:
    assert line.unanswered == 0
    name = line.execute("CLIENT", "ID")
    assert line.unanswered == 0
    asking = [gevent.spawn(line.execute, *words) for words in (("BLPOP", "test:slow", 5), ("PING",), ("PING",))]
    gevent.sleep(0)
    assert line.unanswered == 3
    client().rpush("test:slow", "done")
    gevent.joinall(asking, raise_error=True)
    assert line.unanswered == 0
    lost = gevent.spawn(line.send_nowait, ("BLPOP", "test:never", 5), lambda _: None)
    lost.join()
    assert line.unanswered == 1
    client().execute_command("CLIENT", "KILL", "ID", name)
    wait_until(lambda: line.unanswered == 0)


class Hanging:
    """A connection to a store that takes it and does not greet."""

    def connect(self) -> None:
        gevent.sleep(0.05)
        raise RedisTimeoutError("Timeout reading from socket")


def test_those_who_wait_for_a_connection_share_what_comes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Hanging] = []
    line = RedisMultiplexer(lambda: made.append(Hanging()) or made[-1], 0.2)
    asking = [gevent.spawn(line.execute, "PING") for _ in range(30)]
    gevent.joinall(asking)
    assert [type(one.exception) for one in asking] == [RedisTimeoutError] * 30
    assert len(made) == 1
    # For a moment callers fail without waiting for it; then one of them tries again.
    with pytest.raises(RedisTimeoutError):
        line.execute("PING")
    assert len(made) == 1
    monkeypatch.setattr(redis_multiplexer, "_PAUSE", 0.0)
    line._small._paused_until = 0.0
    with pytest.raises(RedisTimeoutError):
        line.execute("PING")
    assert len(made) == 2
