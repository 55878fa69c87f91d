"""A provider that takes a job and is asked after it: Black Forest Labs' format at the sandbox, over real HTTP."""

from __future__ import annotations

import json
import socket
import time
from base64 import b64decode
from decimal import Decimal
from typing import Any
from uuid import uuid4

import gevent
import pytest

from apps.gateway.canonical.chat import Target
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.client.http_request import ClientRequest
from apps.gateway.dialects.media.images.provider import bfl
from apps.gateway.failures import UpstreamFailure
from apps.gateway.upstream import jobs
from apps.gateway.upstream.http_response import default_timeouts
from apps.gateway.upstream.jobs import check_address
from apps.kernel.valkey import generation
from apps.logs.models import RequestLog
from tests.support.hanging_names import wait_until
from tests.support.image_requests import PNG, edit, generate, size_of
from tests.support.upstream import Caller, settle_all

MODEL = "bfl/flux-pro-1.1"
ASKED = "https://api.bfl.ai/v1/flux-dev"


@pytest.fixture
def flux(caller: Caller, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Caller:
    """The caller, with the catalog's provider at the sandbox, which is asked after jobs in quick succession."""
    monkeypatch.setenv("BFL_API_KEY", "bfl-secret")
    monkeypatch.setenv("BFL_BASE_URL", f"{caller.sandbox_url}/v1")
    monkeypatch.setattr(jobs, "_FIRST_PAUSE", 0.01)
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = True
    generation.bump(generation.CATALOG)
    return caller


def error_of(response: Any) -> tuple[int, str]:
    """Return status and code of an error."""
    return response.status_code, response.json()["error"]["code"]


def test_a_job_is_taken_asked_after_and_its_picture_brought_once(flux: Caller) -> None:
    tag = uuid4().hex
    response = generate(
        flux, f"a cat [[sandbox tag={tag} pending=2]]", model=MODEL, size="1024x576", output_format="png"
    )
    assert response.status_code == 200, response.content
    (image,) = response.json()["data"]
    assert size_of(image["b64_json"]) == (1024, 576)
    taken, *looks = flux.sent(tag)
    assert (taken["method"], taken["path"]) == ("POST", "/v1/flux-pro-1.1")
    assert taken["body"] == {
        "prompt": f"a cat [[sandbox tag={tag} pending=2]]",
        "output_format": "png",
        "width": 1024,
        "height": 576,
    }
    assert [(look["method"], look["path"]) for look in looks] == [("GET", "/v1/get_result")] * 3
    assert {one["headers"]["x-key"][-4:] for one in (taken, *looks)} == {"cret"}
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.used_provider, row.cost, row.image_output_cost) == ("bfl", Decimal("0.04"), Decimal("0.04"))
    assert row.estimated_cost is False


def test_pictures_to_change_are_sent_in_base64(flux: Caller) -> None:
    tag = uuid4().hex
    response = edit(flux, f"a hat [[sandbox tag={tag}]]", model="bfl/flux-kontext-pro", aspect_ratio="16:9")
    assert response.status_code == 200, response.content
    taken = flux.sent(tag)[0]["body"]
    assert (b64decode(taken["input_image"]), taken["aspect_ratio"]) == (PNG, "16:9")
    settle_all()
    assert RequestLog.objects.get().cost == Decimal("0.04")


@pytest.mark.parametrize(
    ("ends", "status", "code", "words"),
    [
        ("request-moderated", 400, "moderation_blocked", "moderation refused the request"),
        ("content-moderated", 400, "moderation_blocked", "Derivative Works Filter"),
        ("error", 502, "all_providers_failed", "bfl failed: The provider failed to make the image"),
        ("task-not-found", 502, "all_providers_failed", "does not know the job any more"),
    ],
)
def test_a_job_that_ends_without_a_picture_is_an_error_and_free(
    flux: Caller, ends: str, status: int, code: str, words: str
) -> None:
    response = generate(flux, f"a cat [[sandbox job={ends}]]", model=MODEL)
    assert error_of(response) == (status, code)
    assert words in response.json()["message"]
    settle_all()
    row = RequestLog.objects.get()
    assert (row.cost, row.has_error) == (Decimal(0), True)


@pytest.mark.parametrize("address", ["poll", "result"])
def test_an_address_of_somebody_else_is_refused(flux: Caller, address: str) -> None:
    tag = uuid4().hex
    response = generate(flux, f"a cat [[sandbox tag={tag} elsewhere={address}]]", model=MODEL)
    assert error_of(response) == (502, "all_providers_failed")
    assert "it named an address that is not its own" in response.json()["message"]
    assert len(flux.sent(tag)) == (1 if address == "poll" else 3)
    settle_all()
    assert RequestLog.objects.get().cost == Decimal(0)


def test_a_job_that_never_ends_is_given_up_after_the_time_of_a_call(flux: Caller, settings: Any) -> None:
    settings.UPSTREAM_TOTAL_TIMEOUT = 0.4
    default_timeouts.cache_clear()
    tag, begun = uuid4().hex, time.monotonic()
    response = generate(flux, f"a cat [[sandbox tag={tag} pending=1000000]]", model=MODEL)
    assert response.status_code == 504
    assert "its job was not done within 0.4 s" in response.json()["message"]
    assert time.monotonic() - begun < 5
    assert [one["method"] for one in flux.sent(tag)].count("POST") == 1


def test_a_client_that_leaves_ends_the_looks_and_pays_nothing(flux: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(ClientRequest, "watch_disconnect", lambda _: ClientDisconnect(ours))
    tag = uuid4().hex

    def leave() -> None:
        wait_until(lambda: len(flux.sent(tag)) > 1)
        theirs.close()

    leaving = gevent.spawn(leave)
    response = generate(flux, f"a cat [[sandbox tag={tag} pending=1000000]]", model=MODEL)
    leaving.join()
    assert response.status_code == 499
    looks = len(flux.sent(tag))
    assert looks > 1
    # Longer than between two looks.
    gevent.sleep(0.3)
    assert len(flux.sent(tag)) == looks
    settle_all()
    row = RequestLog.objects.get()
    assert (row.canceled, row.cost) == (True, Decimal(0))
    ours.close()


def test_a_refused_job_names_what_is_wrong(flux: Caller) -> None:
    response = generate(flux, "a cat [[sandbox status=402]]", model=MODEL)
    assert error_of(response) == (502, "all_providers_failed")
    refused = generate(flux, model=MODEL, size="1536x1024")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "size")


def test_several_pictures_are_several_jobs_and_one_bill(flux: Caller) -> None:
    tag = uuid4().hex
    response = generate(flux, f"a cat [[sandbox tag={tag}]]", model=MODEL, n=3)
    assert response.status_code == 200, response.content
    assert len(response.json()["data"]) == 3
    assert [one["method"] for one in flux.sent(tag)].count("POST") == 3
    assert settle_all() == 1
    assert RequestLog.objects.get().cost == Decimal("0.12")


@pytest.mark.parametrize(
    ("address", "is_its_own"),
    [
        ("https://api.bfl.ai/v1/get_result?id=1", True),
        ("https://api.us1.bfl.ai/v1/get_result?id=1", True),
        ("https://delivery-eu1.bfl.ai/results/x.png?sig=y", True),
        ("https://bfl.ai/x", True),
        ("https://delivery-eu1.bfl.ai:443/x", True),
        ("https://delivery-eu1.bfl.ai:8443/x", False),
        ("http://delivery-eu1.bfl.ai/x", False),
        ("https://notbfl.ai/x", False),
        ("https://bfl.ai.example/x", False),
        ("https://key@bfl.ai/x", False),
        ("https://example.com\\@bfl.ai/x", False),
        ("https://bfl.ai/x HTTP/1.1", False),
        ("https://bfl.ai/x\r\nHost: y", False),
        ("https://bfl.ai:x/", False),
        ("https://[bfl.ai/", False),
        ("//bfl.ai/x", False),
        ("/v1/get_result?id=1", False),
        ("https://bfl.ai/" + "x" * 2_000, False),
    ],
)
def test_whose_an_address_is(address: str, is_its_own: bool) -> None:
    if is_its_own:
        check_address(address, ASKED, ("bfl.ai",))
    else:
        with pytest.raises(UpstreamFailure):
            check_address(address, ASKED, ("bfl.ai",))


def test_a_tenants_own_address_is_the_providers_too() -> None:
    check_address("http://proxy.example:8080/poll", "http://proxy.example:8080/v1/flux-dev", ())
    with pytest.raises(UpstreamFailure):
        check_address("http://proxy.example:8081/poll", "http://proxy.example:8080/v1/flux-dev", ())


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"id": "1"}', b'{"polling_url": 7}', b'{"polling_url": ""}', b'{"status": []}']
)
def test_an_answer_without_an_address_is_no_job(body: bytes) -> None:
    assert bfl.read_job(body) is None
    assert bfl.is_pending(body) is False


def test_which_hosts_are_the_providers_is_a_fact() -> None:
    facts = {"images": {"dialect": "bfl", "hosts": ["bfl.ai"]}}
    assert bfl.provider_hosts(Target(model_name="m", facts=facts)) == ("bfl.ai",)
    assert bfl.is_pending(json.dumps({"status": "Pending"}).encode()) is True


def test_flux_2_is_asked_for_a_size_of_one_megapixel_where_none_is_named(flux: Caller) -> None:
    tag = uuid4().hex
    response = generate(flux, f"a fox [[sandbox tag={tag}]]", model="flux.2-pro")
    assert size_of(response.json()["data"][0]["b64_json"]) == (1024, 1024)
    sent = next(one for one in flux.sent(tag) if one["method"] == "POST")
    assert (sent["path"], sent["body"]["width"], sent["body"]["height"]) == ("/v1/flux-2-pro", 1024, 1024)
    settle_all()
    assert RequestLog.objects.get().cost == Decimal("0.03")
    larger = generate(flux, "a fox", model="flux.2-pro", size="1440x960")
    assert (larger.status_code, larger.json()["error"]["param"]) == (400, "size")
