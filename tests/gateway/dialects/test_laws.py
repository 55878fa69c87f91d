"""The laws that every wire format keeps, and the cases of `wire/<dialect>/`. Both are found by looking.

A case is a folder. `request.json` is what a client sends and `wire.json` what goes to the provider (to `target.json`'s,
when there is one); `reply.json` and `stream.sse` are the provider's answer, whole and streamed; `events.jsonl` is what
both mean; `client.json` and `client.sse` are what the client gets. A file that is missing is not tested.
`client.txt` names the format of the case's client where it is another.
A stream of binary frames is `stream.events`: a line `<event type> <payload>` for each, an exception's type after a `!`;
`client.events` is the same for the client.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from apps.gateway import dialects
from apps.gateway.canonical.chat import Chat, Message, Target, Text
from apps.gateway.canonical.events import Event, Failed, Reply, Summary, UsageReported, fold
from apps.gateway.dialects import chat
from apps.gateway.dialects.chat.bedrock.wire import STREAM_TYPE
from apps.gateway.framing import aws_event_frames, sse_frames
from apps.kernel.errors import InvalidRequest
from apps.kernel.usage import COUNTS, Usage
from tests.support.aws_event_frames import STREAM, lines_of, stream_of
from tests.support.canonical_chats import replies
from tests.support.property_examples import examples
from tests.support.strange_answers import strange_answers
from tests.support.unfolding import unfold

WIRE = Path(__file__).parent / "wire"
DIALECTS = {
    name: dialect for _, name, _ in iter_modules(chat.__path__) if (dialect := dialects.find_dialect(name)) is not None
}
# The laws about clients' requests hold for formats with both sides.
CLIENTS: dict[str, Any] = {
    name: client for name in DIALECTS if (client := dialects.find_client_dialect(name)) is not None
}
TWO_SIDED = {name: DIALECTS[name] for name in CLIENTS}
# Formats whose requests do not name the model themselves.
MODEL_IN_PATH = {"google", "bedrock"}
FRAMINGS = {"sse": sse_frames, "aws_eventstream": aws_event_frames}
# The summary that the gateway adds to every answer of the cases.
SUMMARY = Summary(
    usage=Usage(input=10, cache_read=4, cache_write=3, output=5, reasoning=2),
    cost={
        name: Decimal(amount) for name, amount in (("total", "0.000000123"), ("input", "0.0000001"), ("request", "0"))
    },
    metadata={"requested_model": "fox-1", "requested_provider": None, "used_model": "fox-1", "routing": []},
)
QUESTION = Chat(model="fox-1", messages=[Message(role="user", parts=[Text(text="?")])])


def cases_with(*files: str) -> list[Any]:
    """Return the cases that have all of these files."""
    return [
        pytest.param(DIALECTS[folder.parent.name], folder, id=f"{folder.parent.name}/{folder.name}")
        for folder in sorted(WIRE.glob("*/*"))
        if all(any(folder.glob(name)) for name in files)
    ]


def read_stream(dialect: Any, data: bytes, size: int | None = None) -> Iterator[Event]:
    """Yield the events of a streamed answer that arrives in pieces of `size` bytes."""
    step = size or len(data)
    return dialect.read_events(FRAMINGS[dialect.framing](data[at : at + step] for at in range(0, len(data), step)))


def side_towards_clients(dialect: Any, folder: Path | None = None) -> Any:
    """Return the dialect that clients speak in its cases: what the case says, else itself, or OpenAI's."""
    return CLIENTS.get(side_of(folder) if folder else dialect.name, CLIENTS["openai"])


def side_of(folder: Path) -> str:
    """Return the name of the dialect in which a case is asked: OpenAI's, where the format has the model in its path and
    the request names it."""
    stated, name = folder / "client.txt", folder.parent.name
    if stated.exists():
        return stated.read_text().strip()
    return "openai" if name in MODEL_IN_PATH and not is_of_its_own(folder) else name


def is_of_its_own(folder: Path) -> bool:
    """Return whether the request of a case is in the words of a format that has its model in the path."""
    request = folder / "request.json"
    wire = json.loads(request.read_text()) if request.exists() else {"model": ""}
    return "contents" in wire or "model" not in wire


def client_of(dialect: Any, folder: Path) -> Chat:
    request = folder / "request.json"
    return side_towards_clients(dialect, folder).read_request(request.read_bytes()) if request.exists() else QUESTION


def exactly(text: str | bytes) -> Any:
    """Return JSON so that two compare equal only with the same digits and the same order of fields."""
    return json.loads(text, parse_int="int {}".format, parse_float="float {}".format, object_pairs_hook=list)


def told(event: Event) -> dict[str, Any]:
    """Return an event as a line of `events.jsonl`."""
    if isinstance(event, Failed):
        error = event.error
        words = {"status": error.status, "type": error.type, "code": error.code, "param": error.param}
        return {"event": "Failed", "message": error.message, **words}
    plain: dict[str, Any] = msgspec.to_builtins(event)
    return {"event": type(event).__name__, **plain}


def test_every_dialect_has_cases() -> None:
    assert {folder.name for folder in WIRE.iterdir()} == set(DIALECTS)


@pytest.mark.parametrize(("dialect", "folder"), cases_with("request.json", "wire.json"))
def test_a_request_reaches_the_provider_as_the_case_says(dialect: Any, folder: Path) -> None:
    stated = folder / "target.json"
    target = (
        msgspec.json.decode(stated.read_bytes(), type=Target)
        if stated.exists()
        else Target(model_name="upstream-model", facts={})
    )
    written = dialect.write_request(client_of(dialect, folder), target)
    assert exactly(written) == exactly((folder / "wire.json").read_text())


@pytest.mark.parametrize(("dialect", "folder"), cases_with("events.jsonl"))
def test_an_answer_means_what_the_case_says(dialect: Any, folder: Path) -> None:
    if stream := stream_of(folder):
        events = list(read_stream(dialect, stream))
    else:
        events = list(dialect.read_reply((folder / "reply.json").read_bytes()))
    assert [told(event) for event in events] == [
        json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()
    ]


@pytest.mark.parametrize(("dialect", "folder"), cases_with("reply.json", STREAM))
def test_a_streamed_answer_is_the_plain_one(dialect: Any, folder: Path) -> None:
    streamed = list(read_stream(dialect, stream_of(folder)))
    plain = list(dialect.read_reply((folder / "reply.json").read_bytes()))
    if isinstance(plain[-1], Failed):
        assert [told(event) for event in streamed] == [told(event) for event in plain]
    else:
        assert fold(streamed) == fold(plain)


@pytest.mark.parametrize(("dialect", "folder"), cases_with(STREAM))
def test_a_stream_means_the_same_wherever_it_is_cut_into_pieces(dialect: Any, folder: Path) -> None:
    data = stream_of(folder)
    whole = [told(event) for event in read_stream(dialect, data)]
    for size in (1, 2, 3, 7, 100):
        assert [told(event) for event in read_stream(dialect, data, size)] == whole


@pytest.mark.parametrize(("dialect", "folder"), cases_with("client.json"))
def test_a_client_gets_the_plain_answer_of_the_case(dialect: Any, folder: Path) -> None:
    reply = fold(dialect.read_reply((folder / "reply.json").read_bytes()))
    written = side_towards_clients(dialect, folder).write_reply(reply, SUMMARY, client_of(dialect, folder))
    assert exactly(written) == exactly((folder / "client.json").read_text())


@pytest.mark.parametrize(("dialect", "folder"), cases_with("client.sse"))
def test_a_client_gets_the_streamed_answer_of_the_case(dialect: Any, folder: Path) -> None:
    events = list(read_stream(dialect, stream_of(folder)))
    client = side_towards_clients(dialect, folder)
    written = b"".join(client.write_events([*events, SUMMARY], client_of(dialect, folder)))
    assert written.decode().replace("\r\n", "\n") == (folder / "client.sse").read_text()


@pytest.mark.parametrize(("dialect", "folder"), cases_with("client.events"))
def test_a_client_gets_the_frames_of_the_case(dialect: Any, folder: Path) -> None:
    events = list(read_stream(dialect, stream_of(folder)))
    written = side_towards_clients(dialect, folder).write_events([*events, SUMMARY], client_of(dialect, folder))
    lines = lines_of(b"".join(written))
    assert [exactly_framed(line) for line in lines] == [
        exactly_framed(line) for line in (folder / "client.events").read_text().splitlines()
    ]


def exactly_framed(line: str) -> tuple[str, Any]:
    name, _, payload = line.partition(" ")
    return name, exactly(payload)


@given(reply=replies("any"))
def test_unfolding_and_folding_changes_nothing(reply: Reply) -> None:
    assert fold(unfold(reply)) == reply


@pytest.mark.parametrize("dialect", TWO_SIDED.values(), ids=TWO_SIDED)
@given(data=st.data())
def test_a_request_written_and_read_again_is_the_same(dialect: Any, data: st.DataObject) -> None:
    chat = data.draw(sayable(dialect).chats(dialect.name))
    target = Target(model_name=chat.model, facts=dialect_facts(dialect))
    written = dialect.write_request(chat, target)
    if dialect.name in MODEL_IN_PATH:
        again: Chat = CLIENTS[dialect.name].read_request(written, chat.model, stream=chat.stream)
    else:
        again = CLIENTS[dialect.name].read_request(written)
    assert again.source is not None
    assert replace(again, source=None, include_usage=None) == chat


def sayable(dialect: Any) -> Any:
    """Return the module that draws what a format can say: one of its own, or that which draws all there is."""
    own = f"tests.support.canonical_{dialect.name}_chats"
    return import_module(own if find_spec(own) else "tests.support.canonical_chats")


def dialect_facts(dialect: Any) -> dict[str, Any]:
    """Return the facts of a provider that takes everything its format can say."""
    return dict(json.loads((WIRE / dialect.name / "takes-everything.json").read_text()))


@pytest.mark.parametrize("dialect", TWO_SIDED.values(), ids=TWO_SIDED)
@given(data=st.data())
def test_a_reply_written_plain_or_streamed_reads_as_the_same(dialect: Any, data: st.DataObject) -> None:
    reply = data.draw(sayable(dialect).replies(dialect.name))
    client = CLIENTS[dialect.name]
    plain = fold(dialect.read_reply(client.write_reply(reply, SUMMARY, QUESTION)))
    written = b"".join(client.write_events([*unfold(reply), SUMMARY], QUESTION))
    size = data.draw(st.integers(1, len(written)))
    streamed = fold(read_stream(dialect, written, size))
    for read in (plain, streamed):
        assert read.usage is not None
        assert (read.usage.prompt_tokens, read.usage.completion_tokens) == (17, 7)
        read.usage, read.model = reply.usage, reply.model
        for own in ("metadata", "gateway", "service_tier", "usage", "metrics"):
            read.extra.get(dialect.name, {}).pop(own, None)
        read.extra = {name: extra for name, extra in read.extra.items() if extra}
    assert plain == reply
    assert streamed == reply


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@settings(max_examples=examples(80))
@given(data=st.data())
def test_no_answer_is_too_strange_to_be_read(dialect: Any, data: st.DataObject) -> None:
    """Readers of answers never raise: what makes no sense is left out, or ends the answer."""
    answer = data.draw(strange_answers(WIRE / dialect.name))
    body = msgspec.json.encode(answer)
    for events in (list(dialect.read_reply(body)), list(dialect.read_events([body, body]))):
        assert all(isinstance(event, Event) for event in events)
        assert sum(isinstance(event, Failed) for event in events[:-1]) == 0
        for event in events:
            if isinstance(event, UsageReported):
                assert min(getattr(event.usage, name) for name in COUNTS) >= 0
        if not isinstance(events[-1] if events else None, Failed):
            client = side_towards_clients(dialect)
            framing = "aws_eventstream" if client.stream_type == STREAM_TYPE else "sse"
            written = list(FRAMINGS[framing](client.write_events([*events, SUMMARY], QUESTION)))
            assert all(has_no_doubles(payload) for payload in written if payload != b"[DONE]")


def has_no_doubles(payload: bytes) -> bool:
    """Return whether no object in a JSON text names a field twice."""
    objects: list[list[tuple[str, Any]]] = []
    json.loads(payload, object_pairs_hook=objects.append)
    return all(len(dict(pairs)) == len(pairs) for pairs in objects)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(-9, 1e300) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(("type", "name")), inner, max_size=2),
    max_leaves=4,
)


@st.composite
def strange_requests(draw: st.DrawFn, dialect: Any) -> bytes:
    """Draw the request of a case with one value in it replaced by anything."""
    cases = sorted(it for it in (WIRE / dialect.name).glob("*/request.json") if side_of(it.parent) == dialect.name)
    request = value = json.loads(draw(st.sampled_from(cases)).read_text())
    while True:
        at = draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
        if not isinstance(value[at], dict | list) or not value[at] or draw(st.booleans()):
            value[at] = draw(ANYTHING)
            return msgspec.json.encode(request)
        value = value[at]


@pytest.mark.parametrize("dialect", TWO_SIDED.values(), ids=TWO_SIDED)
@settings(max_examples=examples(100))
@given(data=st.data())
def test_a_request_is_taken_or_refused_by_the_name_of_its_field(dialect: Any, data: st.DataObject) -> None:
    body = data.draw(strange_requests(dialect))
    try:
        chat = CLIENTS[dialect.name].read_request(body)
    except InvalidRequest as error:
        refusal = error
    else:
        target = Target(model_name="m", facts=dialect_facts(dialect))
        for source in (chat.source, None):
            written = dialect.write_request(replace(chat, source=source), target)
            assert dialect.name in MODEL_IN_PATH or json.loads(written)["model"] == "m"
        return
    assert (refusal.status, refusal.code) == (400, "invalid_parameters")
    assert refusal.param is not None
    assert refusal.message.startswith(f"{refusal.param}: ")
    named = refusal.param.split(".")[0].split("[")[0]
    # Google's fields have two spellings, and a refusal uses one.
    spelled = {re.sub("_(.)", lambda letter: letter[1].upper(), name) for name in json.loads(body)}
    assert named in {*json.loads(body), *spelled, "model", "messages", "contents", "input"}


@pytest.mark.parametrize("dialect", TWO_SIDED.values(), ids=TWO_SIDED)
@given(body=st.binary(max_size=60))
def test_bytes_that_are_no_request_are_refused(dialect: Any, body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        CLIENTS[dialect.name].read_request(body)
