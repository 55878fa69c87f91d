"""Providers' answers in every format: readers never raise; what makes no sense is left out or ends with `Failed`, and
what comes out can be written to every client."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pkgutil import iter_modules
from typing import Any

from apps.gateway.canonical.events import Event, Failed, UsageReported, fold
from apps.gateway.dialects import (
    Failure,
    JobReader,
    ProviderDialect,
    TokenCounter,
    chat,
    find_client_dialect,
    find_provider_dialect,
)
from apps.gateway.dialects.media.images import provider as image_providers
from apps.gateway.dialects.media.images.client import write_reply as write_pictures
from apps.gateway.framing import BrokenFrames, sse_frames
from apps.kernel.errors import ApiError
from apps.kernel.usage import COUNTS
from tests.fuzz import seeds
from tests.fuzz.target import Target, pieces_of
from tests.gateway.dialects.test_laws import QUESTION, SUMMARY


def _formats(package: Any) -> dict[str, ProviderDialect]:
    found = {name: find_provider_dialect(package.__name__, name) for _, name, _ in iter_modules(package.__path__)}
    return {name: dialect for name, dialect in found.items() if dialect is not None}


_MADE_IDS = re.compile(r"(?:call|toolu|tooluse|fc)_[0-9A-Za-z]{16,}")
DIALECTS = _formats(chat)
PICTURES = _formats(image_providers)
CLIENTS = [client for name in DIALECTS if (client := find_client_dialect(name)) is not None]


def hold(events: Iterable[Event]) -> list[Event]:
    """Return the events of an answer; assert that they keep every reader's promises."""
    found = list(events)
    assert all(isinstance(event, Event) for event in found)
    assert not any(isinstance(event, Failed) for event in found[:-1]), "something came behind the failure"
    for event in found:
        if isinstance(event, UsageReported):
            counts = {name: getattr(event.usage, name) for name in COUNTS}
            assert min(counts.values()) >= 0, counts
            assert max(counts.values()) < 2**63, counts
    if found and isinstance(found[-1], Failed):
        error = found[-1].error
        assert isinstance(error, ApiError)
        assert 400 <= error.status <= 599
        for client in CLIENTS:
            json.loads(client.write_error(error))
    return found


def _write(events: list[Event]) -> None:
    """Write an answer to every kind of client, whole and streamed."""
    failed = bool(events) and isinstance(events[-1], Failed)
    for client in CLIENTS:
        written = b"".join(client.write_events([*events, *([] if failed else [SUMMARY])], QUESTION))
        for frame in sse_frames([written]):
            assert frame == b"[DONE]" or isinstance(json.loads(frame), dict)
        if not failed:
            assert isinstance(json.loads(client.write_reply(fold(events), SUMMARY, QUESTION)), dict)


def run_reply(dialect: Any, data: bytes) -> None:
    """Read a whole answer."""
    _write(hold(dialect.read_reply(data)))


def run_pictures(dialect: Any, data: bytes) -> None:
    """Read an answer with pictures."""
    events = hold(dialect.read_reply(data))
    if not (events and isinstance(events[-1], Failed)):
        json.loads(write_pictures(fold(events), SUMMARY, QUESTION))


def run_events(dialect: Any, frames: Callable[[Iterable[bytes]], Iterator[bytes]], data: bytes) -> None:
    """Read a streamed answer, whole and in pieces."""
    try:
        # An empty piece is silence.
        events = hold(dialect.read_events(frames([data] if data else [])))
    except BrokenFrames:
        return
    again = hold(dialect.read_events(frames(pieces_of(data, 1))))
    assert list(map(_told, events)) == list(map(_told, again))
    _write(events)


def _told(event: Event) -> str:
    """Return what an event says; a call without an id is given one by chance."""
    return _MADE_IDS.sub("made", repr(event))


def lines_as_frames(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what binary frames carry: `{"<name>": <payload>}` for each line of a name and a payload."""
    for line in b"".join(chunks).split(b"\n"):
        name, _, payload = line.partition(b" ")
        words = json.dumps(name.decode("latin-1").removeprefix("!")).encode()
        inner = b"{%b:%b}" % (words, payload or b"null")
        yield b'{"exception":%b}' % inner if name.startswith(b"!") else inner


def run_failure(dialect: Any, data: bytes) -> None:
    """Read an answer that is an error."""
    for status in (400, 429, 500):
        failure = dialect.read_failure(status, data)
        assert isinstance(failure, Failure)
        assert isinstance(failure.message, str)
        assert failure.message
        assert failure.code is None or isinstance(failure.code, str)
        assert failure.param is None or isinstance(failure.param, str)
        assert failure.status is None or 400 <= failure.status <= 599


def run_count(counter: TokenCounter, data: bytes) -> None:
    """Read a count of tokens."""
    count = counter.read_count(data)
    assert count is None or (isinstance(count, int) and count >= 0)


def run_job(jobs: JobReader, data: bytes) -> None:
    """Read an answer that names a job, or says how far it is."""
    address = jobs.read_address(data)
    assert address is None or isinstance(address, str)
    assert jobs.is_pending(data) in (True, False)


def _targets() -> Iterator[Target]:
    for name, dialect in DIALECTS.items():
        binary = dialect.framing == "aws_eventstream"
        frames = lines_as_frames if binary else sse_frames
        whole, streamed = partial(seeds.answers, name), partial(seeds.streams, name)
        yield Target(f"{name}_reply", partial(run_reply, dialect), whole, shape="json", runs=250)
        shape: Any = "lines" if binary else "sse"
        yield Target(f"{name}_events", partial(run_events, dialect, frames), streamed, shape=shape, runs=100)
        failed = partial(seeds.failures, name)
        yield Target(f"{name}_failure", partial(run_failure, dialect), failed, shape="json", runs=250)
        if (counter := dialect.token_counter) is not None:
            counts = [b'{"input_tokens":3}', b'{"totalTokens":3}', b'{"inputTokens":3}']
            yield Target(f"{name}_count", partial(run_count, counter), lambda counts=counts: counts, "json", runs=100)
    for name, dialect in PICTURES.items():
        if (jobs := dialect.jobs) is not None:
            states = [b'{"id":"a","polling_url":"https://a/b"}', b'{"status":"Pending","result":null}']
            yield Target(f"images_{name}_job", partial(run_job, jobs), lambda states=states: states, "json", runs=100)
        made = [
            b'{"created":1,"data":[{"b64_json":"iVBORw0KGgo=","revised_prompt":"a"}],"usage":{"input_tokens":1,'
            b'"output_tokens":2,"input_tokens_details":{"text_tokens":1,"image_tokens":0}},"size":"64x64"}',
            b'{"output":{"choices":[{"message":{"content":[{"image":"https://a/b.png"}]}}]},"usage":{"image_count":1}}',
            b'{"output":{"results":[{"url":"https://a/b.png"}]},"code":"A","message":"b"}',
            b'{"image":"iVBORw0KGgo=","finish_reason":"SUCCESS","seed":1}',
        ]
        found: Callable[[], list[bytes]] = lambda made=made: made  # noqa: E731 - a name for one argument of two calls
        yield Target(f"images_{name}_reply", partial(run_pictures, dialect), found, shape="json", runs=150)
        yield Target(f"images_{name}_failure", partial(run_failure, dialect), found, shape="json", runs=100)


TARGETS = list(_targets())
