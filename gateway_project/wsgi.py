"""The WSGI application. Hot routes are served ahead of Django's request cycle, by the functions its URL map names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from wsgiref.types import StartResponse, WSGIEnvironment

import django
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.template import Engine
from django.urls import get_resolver

from gateway_project.diagnosis.startup import refuse_unsafe, require_settings
from gateway_project.processes.forked_process import load_shared_modules
from gateway_project.processes.start_gate import await_start

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_project.settings")
require_settings()
django.setup(set_prefix=False)

from apps.gateway.endpoints.answering import SECURITY_HEADERS, respond  # noqa: E402 - models need the apps above
from apps.gateway.worker_warmup import warm_up_soon  # noqa: E402
from apps.guardrails.configuration.compiled_cache import warm_up_rules_once  # noqa: E402
from apps.guardrails.rules import system_rules  # noqa: E402
from apps.kernel.rest.errors import method_not_allowed, unknown_path  # noqa: E402
from apps.kernel.rest.request_headers import prefers_page  # noqa: E402
from apps.responses import background, request_state  # noqa: E402, F401 - workers share what the second one loads
from gateway_project.cors import Cors  # noqa: E402
from gateway_project.http.response_writer import refusal  # noqa: E402
from gateway_project.observability import otlp_metrics  # noqa: E402
from gateway_project.observability.request_lines import RequestLines  # noqa: E402
from gateway_project.routes import TABLE  # noqa: E402

refuse_unsafe()
# Workers share the rules, and what the first scans add to them: 13 MB of each worker that scanned first itself, and
# answered next to nothing meanwhile.
system_rules()
await_start(warm_up_rules_once, load_for_forks=load_shared_modules)
# It finds the static files, which the server's set-up collects in production.
_django = WSGIHandler()


def _load_pages() -> None:
    """Load what Django would load in each worker for its first page, while no other request of the worker goes on."""
    _ = get_resolver().reverse_dict
    engine = Engine.get_default()
    _ = engine.template_loaders, engine.template_context_processors


_load_pages()

# Model endpoints whose paths are whole, which nearly every request is for.
_EXACT = TABLE.exact
_SAFE = frozenset({"GET", "HEAD"})
_CORS = Cors(settings.CORS_ORIGINS)


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Answer one HTTP request."""
    if "HTTP_ORIGIN" in environ:
        return _CORS.serve(environ, start_response, _serve)
    return _serve(environ, start_response)


def _serve(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    method = environ["REQUEST_METHOD"]
    route = _EXACT.get((method, environ["PATH_INFO"]))
    if route is not None:
        return respond(route, environ, start_response)
    if method in _SAFE and prefers_page(environ.get("HTTP_ACCEPT", "")) and TABLE.is_page(environ["PATH_INFO"]):
        return _django(environ, start_response)
    TABLE.normalize(environ)
    found = TABLE.find(method, environ["PATH_INFO"])
    if found is not None:
        return respond(found[0], environ, start_response, found[1])
    methods = TABLE.methods(environ["PATH_INFO"])
    if methods is None or method in methods:
        return _django(environ, start_response)
    return _refuse(environ, start_response, methods)


def _refuse(environ: WSGIEnvironment, start_response: StartResponse, methods: Sequence[str]) -> Iterable[bytes]:
    """Refuse a method that the path does not take, or a path of the model APIs that none has; without Django, so that
    it costs less than an answer."""
    error = method_not_allowed() if methods else unknown_path(environ["PATH_INFO"])
    status, headers, body = refusal(environ, error)
    start_response(status, [*headers, *SECURITY_HEADERS, *([("Allow", ", ".join(methods))] if methods else ())])
    return [body]


def _begin() -> None:
    warm_up_soon()
    background.start()
    otlp_metrics.begin()


if settings.REQUEST_LINES:
    application = RequestLines(application)

# Starts a worker's background work; its server calls it once (`gunicorn.py`).
application.begin = _begin  # type: ignore[attr-defined] # functions have attributes
