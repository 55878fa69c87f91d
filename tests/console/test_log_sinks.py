"""Log sinks in the console: registered once, their credentials never shown, tried, switched and removed by admins."""

from __future__ import annotations

from typing import Any

import pytest

from apps.destinations.credentials import decrypt_credentials
from apps.log_sinks.kinds import BucketKeys, Credentials
from apps.log_sinks.models import LogSink
from tests.log_sinks.sinks import SECRET, SIGNING_KEY, make_sink
from tests.support.cast import World
from tests.support.console_client import Visitor, page, words
from tests.support.sink_receiver import Receiver, _receiver, receiver

__all__ = ["_receiver", "receiver"]
PATH = "log-sinks"


@pytest.fixture
def fields() -> dict[str, Any]:
    """The whole form, as a browser sends it for a bucket: fields of other kinds are empty or as they stood."""
    return {
        "name": "archive",
        "kind": "s3",
        "url": "https://93.184.215.14",
        "includeContent": ["false", "true"],
        "secret": "",
        "format": "jsonl",
        "bucket": "acme-logs",
        "region": "eu-central-1",
        "prefix": "",
        "accessKeyId": "AKIAEXAMPLE",
        "secretAccessKey": SIGNING_KEY,
        "publicKey": "",
        "secretKey": "",
    }


def test_a_sink_is_registered_once_and_its_credentials_never_shown(world: World, fields: dict[str, Any]) -> None:
    adam = Visitor(world.adam)
    assert "No log sinks" in words(adam.open(page(world.acme, PATH)))
    for _ in range(2):
        answer = adam.send(page(world.acme, PATH), fields, once="one-click")
        assert (answer.status_code, answer["Location"]) == (303, page(world.acme, PATH))
    sink = LogSink.objects.get()
    assert (sink.options, sink.include_content) == ({"bucket": "acme-logs", "region": "eu-central-1"}, True)
    assert decrypt_credentials(bytes(sink.encrypted_credentials), Credentials) == BucketKeys("AKIAEXAMPLE", SIGNING_KEY)
    shown = adam.open(page(world.acme, PATH)).content.decode()
    assert ("acme-logs/" in shown, SIGNING_KEY in shown) == (True, False)


def test_rows_are_counted_in_words(world: World) -> None:
    make_sink(world, "webhook", "https://logs.acme.example/in", delivered_rows=1)
    make_sink(world, "otlp", "https://langfuse.example", delivered_rows=2)
    shown = words(Visitor(world.adam).open(page(world.acme, PATH)))
    assert (" 1 row " in shown, " 2 rows " in shown) == (True, True)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"region": ""}, "Required"),
        ({"url": "http://127.0.0.1:9000"}, "Must not lead to a private, loopback or link-local address"),
        ({"kind": "ftp"}, "Must be one of: webhook, s3, otlp"),
        ({"kind": "webhook", "secret": "short"}, "Must be whsec_ followed by 24 to 64 bytes in base64"),
    ],
)
def test_a_refused_form_says_why_and_shows_no_secret(
    world: World, fields: dict[str, Any], changes: dict[str, Any], problem: str
) -> None:
    answer = Visitor(world.adam).send(page(world.acme, PATH), {**fields, **changes})
    assert (answer.status_code, problem in words(answer), SIGNING_KEY in answer.content.decode()) == (400, True, False)
    assert 'value="archive"' in answer.content.decode()
    assert not LogSink.objects.exists()


def test_a_sink_is_tried_switched_and_removed(world: World, receiver: Receiver) -> None:
    adam, sink = Visitor(world.adam), make_sink(world, "webhook", f"{receiver.origin}/hook")
    here = page(world.acme, f"{PATH}/{sink.id}")
    adam.send(f"{here}/sample")
    assert "The log sink webhook took the sample." in words(adam.open(page(world.acme, PATH)))
    receiver.status, receiver.answer = 500, f"<script>{SECRET}</script>".encode()
    adam.send(f"{here}/sample")
    shown = adam.open(page(world.acme, PATH))
    assert "did not take the sample. It answered 500: <script>...</script>" in words(shown)
    assert "<script>..." not in shown.content.decode()
    adam.send(f"{here}/switch", {"status": "inactive"})
    assert LogSink.objects.get().status == "inactive"
    adam.send(f"{here}/remove")
    sink.refresh_from_db()
    assert (sink.status, bytes(sink.encrypted_credentials)) == ("deleted", b"")


def test_a_failure_is_shown(world: World) -> None:
    sink = make_sink(world, "webhook", "https://93.184.215.14/", failures=3, last_error="It answered 418 <b>")
    LogSink.objects.filter(pk=sink.pk).update(last_error_at=sink.created_at)
    shown = Visitor(world.adam).open(page(world.acme, PATH))
    assert ("failing" in words(shown), "It answered 418 <b>" in words(shown)) == (True, True)


def test_it_is_for_admins(world: World, receiver: Receiver) -> None:
    sink = make_sink(world, "webhook", f"{receiver.origin}/hook")
    for path in (PATH, f"{PATH}/{sink.id}/switch", f"{PATH}/{sink.id}/sample", f"{PATH}/{sink.id}/remove"):
        assert Visitor(world.dana).send(page(world.acme, path), {"status": "inactive"}).status_code == 403
    assert Visitor(world.sam).send(page(world.elsewhere, f"{PATH}/{sink.id}/remove")).status_code in {403, 404}
    assert (LogSink.objects.get().status, receiver.taken) == ("active", [])


def test_a_switch_form_without_a_status_changes_what_it_states(world: World) -> None:
    sink = make_sink(world, "webhook", "https://93.184.215.14/")
    switch = page(world.acme, f"{PATH}/{sink.id}/switch")
    adam = Visitor(world.adam)
    assert adam.send(switch, {"name": "archive"}).status_code == 303
    sink.refresh_from_db()
    assert (sink.name, sink.status) == ("archive", "active")
    refused = adam.send(switch, {"name": "other", "secret": "short"})
    assert (refused.status_code, "Must be whsec_ followed by" in words(refused)) == (400, True)
    sink.refresh_from_db()
    assert (sink.name, sink.status) == ("archive", "active")
