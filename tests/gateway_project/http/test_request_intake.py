"""The parts of the intake by themselves, with a clock that the test moves: throttle, body's time and memory, table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from apps.console.browser_session import COOKIE
from apps.kernel.errors import ApiError, BodyTooLarge, Overloaded, RateLimited, RequestTimeout
from gateway_project.http.admission_control import AdmissionControl
from gateway_project.http.connection_table import ConnectionTable, Idle
from gateway_project.http.limits import SMALLEST, ClientLimits, is_model_route, limit_of, streamed_limit_of
from gateway_project.http.request_intake import (
    STREAMED_MEMORY,
    AddressRateLimiter,
    BodyAborted,
    BodyMemory,
    RequestIntake,
    StreamedBody,
    read_body,
)
from gateway_project.http.request_parser import BadRequest, HeadLimits, IncomingRequest
from gateway_project.routes import TABLE

LIMITS = ClientLimits(
    body=1_000_000,
    file=5_000_000,
    body_timeout=120,
    body_rate=1024,
    body_memory=300_000,
    first_byte_timeout=10,
    connections_per_address=10,
    requests_in_progress=10,
    queue_time=1,
    proxies=0,
)


def unhurried() -> AdmissionControl:
    """Return an admission control whose clock stands still: no turn lasts too long, however busy the machine is.

    A request that had to wait for the next turn would wait for ever: nothing runs the event loop here.
    """
    return AdmissionControl(10, 1, clock=lambda: 0.0)


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Sender:
    """A client that sends `piece` bytes every `every` seconds until its request has `size`."""

    def __init__(self, clock: Clock, piece: int, every: float, size: int) -> None:
        self.request = IncomingRequest()
        self._clock, self._piece, self._every, self._size = clock, piece, every, size

    def receive(self, patience: float | None = None) -> bool:
        assert patience is not None
        if patience < self._every:
            self._clock.now += patience
            raise TimeoutError
        self._clock.now += self._every
        self.request.received += self._piece
        self.request.complete = self.request.received >= self._size
        return True

    def go_on(self) -> None:
        """Nothing waits for it."""

    def has_left(self) -> bool:
        return False


class Unread:
    """A client whose body must not be read."""

    def receive(self, patience: float | None = None) -> bool:
        raise AssertionError("it was read")

    def go_on(self) -> None:
        raise AssertionError("it was told to send")

    def has_left(self) -> bool:
        return False


def read(sender: Sender, clock: Clock, limit: int = 1_000_000) -> list[int]:
    held: list[int] = []
    read_body(sender, sender.request, limit, LIMITS, held.append, clock)
    return held


def test_a_body_below_the_minimum_rate_ends_after_its_grace() -> None:
    clock = Clock()
    with pytest.raises(RequestTimeout, match=r"^The request body arrived at less than 1024 bytes a second$"):
        read(Sender(clock, piece=100, every=1, size=100_000), clock)
    assert 10 <= clock.now - 1000 < 12


def test_a_body_at_the_minimum_rate_is_read_until_its_time_is_over() -> None:
    clock = Clock()
    read(Sender(clock, piece=1100, every=1, size=110_000), clock)
    assert clock.now == 1100
    with pytest.raises(RequestTimeout, match=r"^The request body did not arrive within 120 s$"):
        read(Sender(clock, piece=1100, every=1, size=1_000_000), clock)
    assert clock.now == 1220


def test_a_chunked_body_ends_at_its_limit() -> None:
    clock = Clock()
    with pytest.raises(BodyTooLarge, match=r"^The request body is larger than 5000 bytes$"):
        read(Sender(clock, piece=1000, every=0, size=9000), clock, limit=5000)


def test_large_bodies_are_accounted_for_while_they_come() -> None:
    clock = Clock()
    assert sum(read(Sender(clock, piece=50_000, every=0, size=200_000), clock)) == 200_000
    assert read(Sender(clock, piece=50_000, every=0, size=50_000), clock) == []


def test_a_client_that_leaves_is_no_time_out() -> None:
    class Leaver(Sender):
        def receive(self, patience: float | None = None) -> bool:
            return False

    clock = Clock()
    with pytest.raises(BodyAborted):
        read(Leaver(clock, 1, 1, 10), clock)


def test_one_address_cannot_hold_all_the_memory_for_bodies() -> None:
    memory = BodyMemory(300_000)
    memory.hold("a", 150_000)
    with pytest.raises(Overloaded) as refused:
        memory.hold("a", 1)
    assert refused.value.retry_after == 1
    memory.hold("b", 100_000)
    memory.hold(None, 50_000)
    with pytest.raises(Overloaded):
        memory.hold("c", 1)
    memory.let_go("a", 150_000)
    memory.hold("c", 150_000)


def test_a_bucket_fills_again_with_time_and_is_each_addresss_own() -> None:
    clock = Clock()
    throttle = AddressRateLimiter(clock)
    for _ in range(60):
        throttle.count_try("a")
    with pytest.raises(RateLimited) as refused:
        throttle.count_try("a")
    assert refused.value.retry_after == 1
    throttle.count_try("b")
    clock.now += 2
    throttle.count_try("a")
    throttle.count_try("a")
    with pytest.raises(RateLimited):
        throttle.count_try("a")


def test_a_bucket_lets_through_all_that_the_exact_count_allows() -> None:
    """Sixty tries in any minute (`apps.organizations.credentials.attempt_rate_limiter`), however they are spread."""
    clock = Clock()
    throttle = AddressRateLimiter(clock)
    for _ in range(5):
        for _ in range(60):
            throttle.count_try("a")
        with pytest.raises(RateLimited):
            throttle.count_try("a")
        clock.now += 60


def test_forgetting_addresses_keeps_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway_project.http.request_intake._MAX_ADDRESSES", 2)
    throttle = AddressRateLimiter(Clock())
    for _ in range(60):
        throttle.count_try("a")
    throttle.count_try("b")
    throttle.count_try("c")
    for _ in range(60):  # As if it had never tried: it was the one that was quiet for longest.
        throttle.count_try("a")
    with pytest.raises(RateLimited):
        throttle.count_try("a")


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("/v1/chat/completions", 32 * 1024 * 1024),
        ("/v1beta/models/x:generateContent", 32 * 1024 * 1024),
        ("/v2/rerank", 32 * 1024 * 1024),
        ("/model/openai/gpt-5/converse", 32 * 1024 * 1024),
        ("/auth/sign-up/email", 64 * 1024),
        ("/mcp", 4 * 1024 * 1024),
        ("/oauth/token", 1024 * 1024),
        ("/guardrails/test/org", 8 * 1024 * 1024),
        ("/guardrails/rules/org", 1024 * 1024),
        ("/app/o/some-id/playground/chat", 8 * 1024 * 1024),
        ("/app/o/some-id/guardrails/try", 8 * 1024 * 1024),
        ("/app/o/some-id/guardrails/rules", 1024 * 1024),
        ("/app/o/some-id/keys/playground/chat/more", 1024 * 1024),
        ("/app/sign-in", 64 * 1024),
        ("/nowhere", 1024 * 1024),
    ],
)
def test_every_route_has_a_limit(path: str, limit: int) -> None:
    assert limit_of(path, 32 * 1024 * 1024) == limit
    assert limit_of(path, 1000) == 1000


def test_every_route_whose_requests_are_admitted_is_a_model_route() -> None:
    """A path without its prefix among `_MODEL_PREFIXES` would take bodies of 1 MB only."""
    paths = [f"/{route.path}" for route in TABLE.rows if route.rate_family is not None]
    assert len(paths) > 20
    assert [path for path in paths if not is_model_route(path)] == []


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("/v1/files", 200 * 1024 * 1024 + 64 * 1024),
        ("/v1/uploads/upload_1/parts", 64 * 1024 * 1024 + 64 * 1024),
        ("/v1/uploads/upload_1/complete", None),
        ("/v1/uploads", None),
        ("/v1/files/", None),
        ("/v1/files/file-1/content", None),
        ("/v1/chat/completions", None),
    ],
)
def test_only_bodies_with_files_are_read_as_they_come(path: str, limit: int | None) -> None:
    assert streamed_limit_of(path, 32 * 1024 * 1024, 200 * 1024 * 1024) == limit
    assert streamed_limit_of(path, 1_000, 2_000) == (None if limit is None else 2_000 + 64 * 1024)
    assert streamed_limit_of(path, 2_000, 1_000) == (None if limit is None else 2_000 + 64 * 1024)


def environ_of(**changes: str) -> dict[str, Any]:
    environ = {"PATH_INFO": "/v1/files", "REQUEST_METHOD": "POST", "CONTENT_LENGTH": "5000000"}
    return {**environ, "REMOTE_ADDR": "10.0.0.1", "HTTP_AUTHORIZATION": "Bearer gw", **changes}


def test_a_body_that_is_read_as_it_comes_is_let_in_unread_and_takes_little_memory() -> None:
    limits, told = replace(LIMITS, body_memory=3 * STREAMED_MEMORY), list[str]()
    intake = RequestIntake(limits, unhurried(), lambda _: False, told.append)
    request, second = IncomingRequest(), IncomingRequest()
    request.environ, second.environ = environ_of(), environ_of()
    leave = intake.enter(Unread(), request)
    assert isinstance(request.environ["wsgi.input"], StreamedBody)
    # An address has half of the memory.
    with pytest.raises(Overloaded):
        intake.enter(Unread(), second)
    leave()
    intake.enter(Unread(), second)()
    assert told == ["overloaded"]


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"CONTENT_LENGTH": "5065537"}, 413),
        ({"CONTENT_LENGTH": "9" * 19}, 413),
        ({"HTTP_AUTHORIZATION": ""}, 401),
        # It has to be unpacked as a whole.
        ({"HTTP_CONTENT_ENCODING": "gzip"}, 413),
        ({"PATH_INFO": "/v1/chat/completions"}, 413),
    ],
)
def test_a_body_with_a_file_is_refused_unread_too(changes: dict[str, str], status: int) -> None:
    intake = RequestIntake(LIMITS, unhurried(), lambda _: False, lambda _: None)
    request = IncomingRequest()
    request.environ = environ_of(**changes)
    with pytest.raises(ApiError) as refused:
        intake.enter(Unread(), request)
    assert refused.value.status == status


class Pieces(Sender):
    """A client that sends what it is given, a piece every second; nothing more after the last."""

    def __init__(self, clock: Clock, *pieces: bytes, every: float = 1.0) -> None:
        super().__init__(clock, 0, every, 0)
        self._pieces = list(pieces)
        self.told = 0

    def receive(self, patience: float | None = None) -> bool:
        assert patience is not None
        if patience < self._every or not self._pieces:
            self._clock.now += patience
            raise TimeoutError
        self._clock.now += self._every
        piece = self._pieces.pop(0)
        self.request.body.append(piece)
        self.request.received += len(piece)
        return True

    def go_on(self) -> None:
        self.told += 1


def streamed(sender: Sender, clock: Clock, length: int) -> StreamedBody:
    return StreamedBody(sender, sender.request, length, LIMITS, clock)


def test_a_streamed_body_is_read_in_pieces_of_any_size() -> None:
    clock = Clock()
    sender = Pieces(clock, b"abcde", b"fg", b"hij")
    body = streamed(sender, clock, 10)
    assert sender.told == 0
    assert [body.read(3), body.read(1), body.read(4)] == [b"abc", b"d", b"efgh"]
    assert (clock.now, sender.told > 0) == (1003.0, True)
    sender.request.complete = True
    assert [body.read(5), body.read(5), body.read()] == [b"ij", b"", b""]


def test_the_time_of_a_streamed_body_is_what_its_client_took() -> None:
    clock = Clock()
    body = streamed(Pieces(clock, *[b"x" * 1_100] * 200), clock, 1_000_000)
    for _ in range(119):
        assert body.read(1_100)
        # The time that the reader takes in between does not count.
        clock.now += 100
    with pytest.raises(RequestTimeout, match=r"^The request body did not arrive within 120 s$"):
        body.read(2_200)


def test_a_streamed_body_that_is_larger_may_take_longer() -> None:
    clock = Clock()
    body = streamed(Pieces(clock, *[b"x" * 1_100] * 2_000), clock, 2_000_000)
    assert len(body.read(230 * 1_100)) == 230 * 1_100
    with pytest.raises(RequestTimeout, match=r"^The request body did not arrive within 240 s$"):
        body.read(1_100_000)
    body = streamed(Pieces(clock, b"x"), clock, 10**9)
    with pytest.raises(RequestTimeout, match=r"^The request body arrived at less than 1024 bytes a second$"):
        body.read(2)


def test_a_streamed_body_whose_client_leaves_ends() -> None:
    class Leaver(Sender):
        def receive(self, patience: float | None = None) -> bool:
            return False

    clock = Clock()
    with pytest.raises(BodyAborted):
        streamed(Leaver(clock, 1, 1, 10), clock, 10).read(5)


@pytest.mark.parametrize("complete", [True, False])
def test_what_is_malformed_behind_a_streamed_body_ends_its_connection(complete: bool) -> None:
    class Malformed(Sender):
        def receive(self, patience: float | None = None) -> bool:
            self.request.complete = complete
            self.request.body.append(b"ab")
            raise BadRequest(400, "The request is not valid HTTP/1.1")

    clock = Clock()
    sender = Malformed(clock, 1, 1, 10)
    sender.request.keep_alive = True
    body = streamed(sender, clock, 2)
    if complete:
        assert body.read() == b"ab"
    else:
        with pytest.raises(BodyAborted):
            body.read()
    assert sender.request.keep_alive is False


@pytest.mark.parametrize(
    ("cookie", "status"),
    [
        ("", 401),
        ("sessionid=abc; gateway-organization=x", 401),
        ("gateway-session=", 401),
        ("a=b; gateway-session=t0ken", 413),
        ("__Host-gateway-session=t0ken", 413),
    ],
)
def test_a_large_form_without_a_session_is_refused_before_it_is_read(cookie: str, status: int) -> None:
    request = IncomingRequest()
    request.environ = {
        "PATH_INFO": "/app/o/some-id/keys/new",
        "REQUEST_METHOD": "POST",
        "CONTENT_LENGTH": str(1024 * 1024 + (status == 413)),
        "HTTP_COOKIE": cookie,
        "REMOTE_ADDR": "10.0.0.1",
    }
    limits = replace(LIMITS, body=32 * 1024 * 1024)
    told: list[str] = []
    intake = RequestIntake(limits, unhurried(), lambda _: False, told.append)
    with pytest.raises(ApiError) as refused:
        intake.enter(Unread(), request)
    assert refused.value.status == status
    assert told == [{401: "no_credential", 413: "too_large"}[status]]


def test_the_session_is_looked_for_under_the_name_that_its_cookie_has() -> None:
    assert COOKIE in ("gateway-session", "__Host-gateway-session")


PLAIN = b"POST %b HTTP/1.1\r\nHost: gateway\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    ("path", "more", "shed"),
    [
        (b"/v1/chat/completions", {}, True),
        (b"/projects", {}, True),
        (b"/v1/chat/completions", {"busy": 1}, False),
        (b"/livez", {}, False),
        (b"/auth/sign-in/email", {}, False),
        (b"/v1/chat/completions?a=b", {}, False),
        (b"/v1/chat/completions", {"proxies": 1}, False),
        (b"/v1/chat/completions", {"trusted": True}, False),
        (b"/v1/chat/completions", {"peer": ""}, False),
    ],
)
def test_what_is_shed_by_its_bytes_alone(path: bytes, more: dict[str, Any], shed: bool) -> None:
    told: list[str] = []
    admission = AdmissionControl(2, 1)
    admission.in_progress = more.get("busy", 2)
    limits = replace(LIMITS, proxies=more.get("proxies", 0))
    intake = RequestIntake(limits, admission, lambda _: more.get("trusted", False), told.append)
    answer = intake.shed(more.get("peer", "10.0.0.1"), PLAIN % path, HeadLimits(8190, 100, 8190))
    assert (answer or b"").startswith(b"HTTP/1.1 503 Service Unavailable\r\n" if shed else b"")
    assert (answer is not None, told) == (shed, ["overloaded"] if shed else [])
    assert admission.in_progress == more.get("busy", 2)


def test_a_body_above_the_smallest_limit_is_not_shed_by_its_bytes() -> None:
    admission = AdmissionControl(0, 1)
    intake = RequestIntake(LIMITS, admission, lambda _: False, lambda _: None)
    for size, shed in ((SMALLEST - 100, True), (SMALLEST, False)):
        data = (PLAIN % b"/v1/messages").replace(b": 2", b": %d" % size)[:-2] + b" " * size
        assert (intake.shed("10.0.0.1", data, HeadLimits(8190, 100, 8190)) is not None) == shed


def test_who_has_been_shed_waits_anew() -> None:
    table = ConnectionTable(10, 10, first_byte_timeout=10, keepalive=75)
    first, second = Idle(table, "a"), Idle(table, "b")
    with first, second:
        assert list(table.fresh) == [first, second]
        first.begun, first.since = True, 0.0
        first.wait_anew()
        assert (list(table.fresh), list(table.kept)) == ([second], [first])
        assert not first.begun
        assert first.since >= second.since
        second.wait_anew()
        first.wait_anew()
        assert list(table.kept) == [second, first]
    assert not table.fresh
    assert not table.kept
