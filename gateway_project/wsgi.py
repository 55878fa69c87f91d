"""The WSGI door. Hot routes are served ahead of Django's own request cycle by the same functions its URL map names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_project.settings")
_django = get_wsgi_application()

from apps.gateway.endpoints.chat_completions import chat_completions  # noqa: E402 - models need the apps above
from apps.gateway.endpoints.images import images_edits, images_generations  # noqa: E402 - models need the apps above
from apps.gateway.endpoints.messages import count_tokens, messages  # noqa: E402
from apps.gateway.endpoints.route_explain import route_explain  # noqa: E402
from apps.gateway.endpoints.serving import Endpoint, respond  # noqa: E402
from apps.gateway.worker_warmup import warm_up_soon  # noqa: E402
from gateway_project.checks import refuse_unsafe  # noqa: E402

refuse_unsafe()

HOT: dict[tuple[str, str], Endpoint] = {
    ("POST", "/v1/chat/completions"): chat_completions,
    ("POST", "/v1/images/generations"): images_generations,
    ("POST", "/v1/images/edits"): images_edits,
    ("POST", "/v1/messages"): messages,
    ("POST", "/v1/messages/count_tokens"): count_tokens,
    ("POST", "/v1/route/explain"): route_explain,
}


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Answer one HTTP request."""
    endpoint = HOT.get((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
    if endpoint is not None:
        return respond(endpoint, environ, start_response)
    return _django(environ, start_response)


# What a worker does beside answering; its server calls it once (`gunicorn.py`).
application.begin = warm_up_soon  # type: ignore[attr-defined] # functions have attributes
