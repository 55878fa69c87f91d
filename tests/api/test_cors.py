"""CORS: which pages may call the model APIs from a browser, by the deployment's list and by each key's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured, ValidationError

from apps.gateway.access import policy
from apps.keys.models import ApiKey
from apps.organizations.models import AuditEntry
from gateway_project import wsgi
from gateway_project.configuration.web_origins import CorsOrigins
from gateway_project.cors import Cors, known_origins
from tests.support.cast import World, make_key, signed_in
from tests.support.model_routes import Answer, body_of, call, error_of
from tests.support.upstream import Caller, nothing_happened

PAGE, OWN, FOREIGN = "https://app.example.com", "https://own.example.com:8443", "https://evil.example.com"
CHAT = "/v1/chat/completions"
ALLOWED, CREDENTIALS = "access-control-allow-origin", "access-control-allow-credentials"


@pytest.fixture(autouse=True)
def listed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The deployment names one page."""
    monkeypatch.setattr(wsgi, "_CORS", Cors(CorsOrigins(every=False, named=frozenset({PAGE}))))
    known_origins.forget()
    yield
    known_origins.forget()


def own_origins(caller: Caller, *origins: str) -> None:
    """Give the caller's key origins of its own."""
    caller.key.allowed_origins = list(origins)
    caller.key.save(update_fields=["allowed_origins"])
    policy.forget_all()
    known_origins.forget()


def ask(
    path: str = CHAT, method: str = "POST", origin: str | None = PAGE, token: str = "", body: Any = None, **environ: Any
) -> Answer:
    """Ask as a page does."""
    headers = {"HTTP_ORIGIN": origin, "HTTP_AUTHORIZATION": f"Bearer {token}" if token else None}
    sent = {name: value for name, value in headers.items() if value is not None}
    content = json.dumps(body or body_of("chat")).encode() if method == "POST" else b""
    whole = {"CONTENT_TYPE": "application/json", "SERVER_NAME": "localhost", "SERVER_PORT": "80", **sent, **environ}
    return call(path, content, {"REQUEST_METHOD": method, "wsgi.url_scheme": "http", **whole})


def preflight(origin: str, path: str = CHAT, names: str = "authorization,x-stainless-lang") -> Answer:
    """Ask as a browser does before it sends what a page wants to send."""
    asked = {"HTTP_ACCESS_CONTROL_REQUEST_METHOD": "POST", "HTTP_ACCESS_CONTROL_REQUEST_HEADERS": names}
    return ask(path, "OPTIONS", origin, **asked)


@pytest.mark.parametrize(
    "path", [CHAT, "/v1/messages", "/v1/models", "/chat/completions", "/v1/nothing", "/openai/v1/x"]
)
def test_a_named_page_may_ask_what_it_may_send(db: None, path: str) -> None:
    answer = preflight(PAGE, path)
    assert (answer.status, answer.content) == (204, b"")
    assert answer.headers[ALLOWED] == PAGE
    assert answer.headers["access-control-allow-headers"] == "authorization,x-stainless-lang"
    assert answer.headers["access-control-allow-methods"] == "GET, HEAD, POST, PUT, PATCH, DELETE"
    assert answer.headers["vary"].startswith("Origin")
    assert CREDENTIALS not in answer.headers


@pytest.mark.parametrize("names", ["", "a b", "x\r\ny: z", "authorization;", "," * 10, "x-" + "y" * 5_000])
def test_names_that_are_none_are_not_given_back(db: None, names: str) -> None:
    answer = preflight(PAGE, names=names)
    assert (answer.status, answer.headers["access-control-allow-headers"]) == (
        204,
        "authorization, content-type, x-api-key",
    )


@pytest.mark.parametrize(
    "origin", [FOREIGN, "null", "", "https://app.example.com.evil.example", PAGE + "/", PAGE.upper()]
)
def test_another_page_is_told_that_it_may_not(db: None, origin: str) -> None:
    answer = preflight(origin)
    message = (
        f"Pages of {origin} may not call this: neither CORS_ALLOWED_ORIGINS nor an API key's allowedOrigins name it"
    )
    expected = error_of("chat", 403, "permission_error", "origin_not_allowed", message)
    assert (answer.status, answer.json()) == (403, expected)
    assert ALLOWED not in answer.headers


@pytest.mark.parametrize(
    "path", ["/auth/sign-in/email", "/keys/api", "/organization", "/admin/", "/logs", "/metrics", "/"]
)
def test_nothing_but_the_apis_of_models_is_opened(db: None, path: str) -> None:
    for answer in (preflight(PAGE, path), ask(path, "GET")):
        assert [name for name in answer.headers if name.startswith("access-control")] == []


def test_a_page_reads_answers_and_errors_alike(caller: Caller) -> None:
    answers = [
        ask(token=caller.token),
        ask(token="gw_dev_" + "x" * 40),
        ask("/v1/nothing", token=caller.token),
        ask("/v1/models", "GET"),
    ]
    assert [answer.status for answer in answers] == [200, 401, 404, 200]
    for answer in answers:
        assert answer.headers[ALLOWED] == PAGE
        assert "x-request-id" in answer.headers["access-control-expose-headers"]
        assert CREDENTIALS not in answer.headers


def test_a_request_of_no_page_has_no_word_of_it(caller: Caller) -> None:
    answer = ask(origin=None, token=caller.token)
    assert answer.status == 200
    assert [name for name in answer.headers if name.startswith("access-control") or name == "vary"] == []


def test_a_page_that_is_not_named_gets_an_answer_that_it_cannot_read(caller: Caller) -> None:
    """Programs that are browsers inside send an origin too, and read what they like: they are served as ever."""
    answer = ask(origin=FOREIGN, token=caller.token)
    assert (answer.status, answer.headers["vary"]) == (200, "Origin")
    assert ALLOWED not in answer.headers


def test_a_keys_own_pages_may_use_it_and_no_others(caller: Caller) -> None:
    own_origins(caller, OWN)
    assert (preflight(OWN).status, preflight(FOREIGN).status) == (204, 403)
    allowed = ask(origin=OWN, token=caller.token)
    assert (allowed.status, allowed.headers[ALLOWED]) == (200, OWN)
    # A server sends no origin.
    assert ask(origin=None, token=caller.token).status == 200


@pytest.mark.parametrize("origin", [PAGE, FOREIGN, "null"])
def test_a_key_with_pages_of_its_own_is_refused_at_any_other_and_nothing_happens(caller: Caller, origin: str) -> None:
    own_origins(caller, OWN)
    answer = ask(origin=origin, token=caller.token)
    message = f"This API key may not be used by pages of {origin}: its allowedOrigins do not name it"
    expected = error_of("chat", 403, "permission_error", "origin_not_allowed", message)
    assert (answer.status, answer.json()) == (403, expected)
    assert answer.headers["x-should-retry"] == "false"
    assert ALLOWED not in answer.headers
    assert nothing_happened(caller)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/chat", {"model": "sandbox/echo", "messages": [{"role": "user", "content": "hi"}], "stream": False}),
        ("/model/sandbox/echo/converse", {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}),
        ("/v2/chat", {"model": "sandbox/echo", "messages": [{"role": "user", "content": "hi"}]}),
    ],
)
def test_a_keys_pages_hold_in_every_client_format(caller: Caller, path: str, body: dict[str, Any]) -> None:
    own_origins(caller, OWN)
    assert preflight(OWN, path).status == 204
    assert ask(path, origin=FOREIGN, token=caller.token, body=body).status == 403
    assert nothing_happened(caller)
    allowed = ask(path, origin=OWN, token=caller.token, body=body)
    assert (allowed.status, allowed.headers[ALLOWED]) == (200, OWN)


def test_another_form_of_a_path_is_no_way_around_a_keys_pages(caller: Caller) -> None:
    own_origins(caller, OWN)
    for path in (
        "/chat/completions",
        "//v1/chat/completions",
        "/v1/v1/chat/completions",
        "/openai/v1/chat/completions",
    ):
        assert ask(path, origin=FOREIGN, token=caller.token).status == 403
    assert nothing_happened(caller)


def test_a_page_of_one_key_learns_that_another_does_not_work_and_nothing_of_one_that_does(caller: Caller) -> None:
    own_origins(caller, OWN)
    wrong = ask(origin=OWN, token="gw_dev_" + "x" * 40)
    assert (wrong.status, wrong.headers[ALLOWED]) == (401, OWN)
    other = make_key(caller.key.created_by, caller.key.project).token
    assert ALLOWED not in ask(origin=OWN, token=other).headers


def test_a_key_that_no_longer_works_opens_no_page(caller: Caller) -> None:
    own_origins(caller, OWN)
    caller.key.status = ApiKey.Status.INACTIVE
    caller.key.save()
    known_origins.forget()
    assert preflight(OWN).status == 403


def test_every_page_is_a_star_and_never_an_echo(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wsgi, "_CORS", Cors(CorsOrigins(every=True, named=frozenset())))
    for answer in (preflight(FOREIGN), ask(origin=FOREIGN, token=caller.token)):
        assert answer.headers[ALLOWED] == "*"
        assert CREDENTIALS not in answer.headers
    own_origins(caller, OWN)
    assert ask(origin=FOREIGN, token=caller.token).status == 403


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("", CorsOrigins(False, frozenset())),
        ("*", CorsOrigins(True, frozenset())),
        (f"{PAGE}, {OWN}", CorsOrigins(False, frozenset({PAGE, OWN}))),
        (
            "tauri://localhost,http://[::1]:3000",
            CorsOrigins(False, frozenset({"tauri://localhost", "http://[::1]:3000"})),
        ),
    ],
)
def test_the_deployments_list(monkeypatch: pytest.MonkeyPatch, stated: str, expected: CorsOrigins) -> None:
    monkeypatch.setenv("CORS_ALLOWED_ORIGINS", stated)
    assert CorsOrigins.of_environment() == expected


@pytest.mark.parametrize(
    "stated", ["app.example.com", "https://app.example.com/", "https://*.example.com", "*,https://a", "null"]
)
def test_a_list_that_would_never_fit_stops_the_start(monkeypatch: pytest.MonkeyPatch, stated: str) -> None:
    monkeypatch.setenv("CORS_ALLOWED_ORIGINS", stated)
    with pytest.raises(ImproperlyConfigured, match="CORS_ALLOWED_ORIGINS"):
        CorsOrigins.of_environment()


class TestTheField:
    def test_is_set_changed_shown_and_audited(self, world: World) -> None:
        olivia = signed_in(world.olivia)
        body = {
            "description": "page",
            "projectId": str(world.project.id),
            "allowedOrigins": ["HTTPS://Own.example.com:8443"],
        }
        made = olivia.send("POST", "/keys/api", body).json()["apiKey"]
        assert made["allowedOrigins"] == [OWN]
        path = f"/keys/api/{made['id']}"
        assert olivia.send("PATCH", path, {"allowedOrigins": []}).json()["apiKey"]["allowedOrigins"] == []
        assert ApiKey.objects.get(pk=made["id"]).allowed_origins == []
        entry = AuditEntry.objects.get(action="api_key.update")
        assert entry.details["changes"] == {"allowed_origins": {"from": [OWN], "to": []}}

    def test_is_held_to_origins_in_the_admin_too(self, world: World) -> None:
        key = make_key(world.olivia, world.project).key
        for wrong in (["app.example.com"], ["*"], [5], "https://a", {"a": 1}):
            key.allowed_origins = wrong
            with pytest.raises(ValidationError) as refused:
                key.full_clean()
            assert list(refused.value.message_dict) == ["allowed_origins"]
        key.allowed_origins = [OWN]
        key.full_clean()

    @pytest.mark.parametrize(
        ("origins", "path", "message"),
        [
            (["app.example.com"], "allowedOrigins[0]", "Must be an origin such as"),
            (["*"], "allowedOrigins[0]", "Must be an origin such as"),
            ([PAGE, PAGE + "/x"], "allowedOrigins[1]", "Must be an origin such as"),
            (["null"], "allowedOrigins[0]", "Must be an origin such as"),
            ([f"https://a{n}.example" for n in range(51)], "allowedOrigins", "at most 50 items"),
            ([5], "allowedOrigins[0]", "Must be a string"),
            (PAGE, "allowedOrigins", "Must be an array"),
            (None, "allowedOrigins", "Must not be null"),
        ],
    )
    def test_refuses_what_is_no_origin_and_keeps_what_was(
        self, world: World, origins: Any, path: str, message: str
    ) -> None:
        key = make_key(world.olivia, world.project).key
        answer = signed_in(world.olivia).send("PATCH", f"/keys/api/{key.id}", {"allowedOrigins": origins})
        [issue] = answer.json()["issues"]
        assert (answer.status_code, issue["path"]) == (400, path)
        assert message in issue["message"]
        key.refresh_from_db()
        assert key.allowed_origins == []
