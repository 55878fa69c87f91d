"""Credentials of the service go to their providers and nowhere else; words of clients are words.

Tries known attacks on gateways on this one; each test is named after the attack that it prevents.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client

from tests.security.entry_points import opened
from tests.support.cast import World, signed_in
from tests.support.guardrails_in_force import waiting, written
from tests.support.upstream import Caller, settle_all

# Names under which requests have named an address to send credentials to.
INSIDE = ("api_base", "base_url", "baseUrl", "api_url", "endpoint", "proxy", "url", "callback_url", "azure_endpoint")


@contextmanager
def listener() -> Iterator[tuple[str, list[bytes]]]:
    """Listen at a port of this machine; yield its address, and what came."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        stopping = threading.Event()

        def listen() -> None:
            while not stopping.is_set():
                try:
                    sock, _ = server.accept()
                except OSError:
                    continue
                with sock:
                    sock.settimeout(1)
                    heard.append(sock.recv(65_536))

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", heard
        finally:
            stopping.set()
            thread.join()


@pytest.mark.parametrize("place", ["body", "extra_body", "user_config", "metadata", "message", "header"])
def test_nothing_in_a_request_redirects_a_credential(caller: Caller, place: str) -> None:
    """CVE-2024-6587, PYSEC-2026-4070: `api_base` in the body, or nested in it, sends the provider's key elsewhere."""
    tag = uuid4().hex
    content: Any = f"hi [[sandbox tag={tag}]]"
    with listener() as (url, heard):
        where = dict.fromkeys(INSIDE, url)
        fields: dict[str, Any] = {}
        match place:
            case "body":
                fields = where
            case "message":
                content = [{"type": "text", "text": content, **where}]
            case "metadata":
                fields = {"metadata": where}
            case "header":
                fields = {"headers": {f"x-{name.replace('_', '-')}": url for name in INSIDE}}
            case _:
                fields = {place: {"model_list": [{"litellm_params": where}], **where}}
        answer = caller.chat(content, **fields)
        assert heard == []
    assert answer.status_code in {200, 400}
    if answer.status_code == 200:
        (sent,) = caller.sent(tag)
        assert sent["headers"]["host"] in caller.sandbox_url


def test_no_credential_is_in_any_sink(
    caller: Caller, capfd: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CVE-2025-11203, CVE-2024-6587: a canary for the service's credential, and every sink searched for it."""
    monkeypatch.setenv("SANDBOX_API_KEY", canary := "sk-canary-of-the-service")
    caplog.set_level("DEBUG")
    held = ""
    for script in ("", "status=401", "status=500", "status=500:html", "broken=middle", "cut=middle", "reset=head"):
        for stream in (False, True):
            answer = caller.chat(f"hi [[sandbox {script}]]", stream=stream)
            body = b"".join(answer.streaming_content) if answer.streaming else answer.content
            assert canary.encode() not in body
            held += waiting()
    assert caller.chat(headers={"Authorization": "Bearer " + caller.token[:-1]}).status_code == 401
    settle_all()
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_jsonb(it)::text FROM organizations_auditentry it")
        audited = "".join(text for (text,) in cursor.fetchall())
    sinks = [held, waiting(), written(), audited, caplog.text, *capfd.readouterr()]
    assert [secret in text for secret in (canary, caller.token) for text in sinks] == [False] * len(sinks) * 2


@pytest.mark.parametrize("path", opened())
def test_no_public_page_shows_a_secret(db: None, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """CVE-2025-11203: a health page that prints the configuration."""
    monkeypatch.setenv("SANDBOX_API_KEY", "sk-canary-of-the-service")
    answer = Client().get(path)
    text = b"".join(answer.streaming_content) if answer.streaming else answer.content
    secrets = [settings.SECRET_KEY, settings.API_KEY_PEPPER, *settings.ENCRYPTION_KEYS, "sk-canary-of-the-service"]
    assert [secret.encode() in text for secret in secrets] == [False] * len(secrets)
    assert settings.DATABASES["default"]["NAME"].encode() not in text or path in {
        "/openapi.json",
        "/docs/api",
        "/metrics",
    }


# --- words that are taken for something else


TEMPLATES = [
    "{{7*7}}",
    "${7*7}",
    "{% debug %}",
    "#{7*7}",
    "<%= 7*7 %>",
    "%(secret)s",
    "{0.__class__}",
    "${jndi:ldap://a}",
]


@pytest.mark.parametrize("text", TEMPLATES)
def test_a_template_in_a_request_is_text(caller: Caller, text: str) -> None:
    """CVE-2024-2952, CVE-2026-42203: templates of clients that are filled in."""
    answer = caller.chat(f"[[sandbox verbatim]]{text}", chat_template=text, user=text, metadata={"a": text})
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"] == text
    refused = caller.chat(model=text)
    assert refused.status_code == 400
    assert "49" not in refused.json()["error"]["message"]


@pytest.mark.parametrize("text", TEMPLATES)
def test_a_template_in_a_name_is_text(world: World, text: str) -> None:
    """CVE-2026-42203, for what management keeps."""
    olivia = signed_in(world.olivia)
    assert olivia.send("PATCH", f"/organization/{world.acme.id}", {"name": text}).status_code == 200
    assert [one["name"] for one in olivia.get("/organization").json()["organizations"]] == [text]


def test_a_client_cannot_begin_a_line_of_the_log(caller: Caller, capfd: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Words with line breaks that pass for entries of their own."""
    forged = "x\n2026-01-01T00:00:00Z [error] forged.entry"
    caplog.set_level("DEBUG")
    caller.chat(model=forged, user=forged)
    caller.chat(f"hi [[sandbox status=500]]{forged}", metadata={"a": forged})
    caller.client.get(f"/nowhere/{forged}".replace("\n", "%0A"))
    settle_all()
    lines = "\n".join([caplog.text, *capfd.readouterr()]).splitlines()
    assert [line for line in lines if line.startswith("2026-01-01T00:00:00Z")] == []
