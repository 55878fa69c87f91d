"""Django's URL map, made from the route table."""

from __future__ import annotations

from django.urls import path

from apps.gateway.endpoints.answering import view_of
from apps.kernel.rest.routes import Route
from gateway_project.routes import TABLE

_model_routes: dict[str, list[Route]] = {}
for _route in TABLE.rows:
    if _route.method is not None:
        _model_routes.setdefault(_route.path, []).append(_route)

urlpatterns = [
    *(path(where, view_of(routes)) for where, routes in _model_routes.items()),
    *(path(route.path, route.endpoint) for route in TABLE.rows if route.method is None),
]

handler400 = "apps.kernel.rest.errors.bad_request"
handler403 = "apps.kernel.rest.errors.forbidden"
handler404 = "apps.kernel.rest.errors.not_found"
handler500 = "apps.kernel.rest.errors.failed"
