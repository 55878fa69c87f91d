"""Settings for connections that a test serves by itself: an application that says `ok`, and generous limits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gateway_project.http.admission_control import AdmissionControl
from gateway_project.http.connection import ConnectionSettings
from gateway_project.http.limits import ClientLimits
from gateway_project.http.request_intake import RequestIntake
from gateway_project.http.request_parser import HeadLimits


def settings() -> ConnectionSettings:
    """Return them."""

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Length", "2")])
        return [b"ok"]

    def nothing(*_: object) -> bool:
        return False

    limits = HeadLimits(line=1_000, headers=10, header=1_000)
    intake = RequestIntake(ClientLimits.of_environment(), AdmissionControl(100, 2.0), nothing, nothing)
    return ConnectionSettings(application, limits, {}, nothing, {}, nothing, intake, nothing, nothing)
