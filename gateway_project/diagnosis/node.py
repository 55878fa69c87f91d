"""Checks of this node: provider credentials, free disk, records on disk, the web process, the collector.

The catalog names the variables that hold credentials. Credentials are never printed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from apps.catalog.models import Provider
from apps.gateway.access.schemes import service_secrets
from apps.gateway.settlement import disk_space
from apps.gateway.settlement.record_backlog import is_any_process_backlogged
from gateway_project.diagnosis.check import Diagnosis

_MEGABYTE = 1024 * 1024
# Seconds that an answer may take.
_PATIENCE = 3.0


def find_credentials() -> Iterator[Diagnosis]:
    """Yield of how many providers the gateway itself has credentials; those of organizations are not looked at."""
    rows = Provider.objects.filter(active=True).exclude(id="sandbox").order_by("id")
    given = [one.id for one in rows if service_secrets(one.auth, one.api_key_env, os.environ)]
    if given:
        yield Diagnosis.ok("credentials", f"the gateway's own at {', '.join(given)}")
    else:
        yield Diagnosis.warning(
            "credentials",
            "the gateway has none of its own at any provider: only organizations' own are used",
            "set one, such as OPENAI_API_KEY; the names are in apps/catalog/providers/*.toml",
        )


def find_disk() -> Iterator[Diagnosis]:
    """Yield how much space is left, and whether records wait on the disk."""
    for folder, size in disk_space.read_free().items():
        finding = f"{size // _MEGABYTE} MB free where {folder} is"
        if size < settings.DISK_FREE_ALARM:
            yield Diagnosis.error("disk", finding, f"free some: at least {settings.DISK_FREE_ALARM // _MEGABYTE} MB")
        else:
            yield Diagnosis.ok("disk", finding)
    spool = Path(settings.GATEWAY_HOME) / "spool"
    waiting, broken = len(list(spool.glob("*.spool"))), len(list(spool.glob("*.broken")))
    if waiting:
        yield Diagnosis.warning(
            "spool", f"{waiting} files of records wait on this disk", "they are written once Valkey takes them"
        )
    if broken:
        yield Diagnosis.error(
            "spool", f"{broken} records were not kept intact by the disk", f"look at {spool}/*.broken"
        )


def find_web_process() -> Iterator[Diagnosis]:
    """Yield whether this node's web process answers, and whether requests should be sent to it."""
    # Here and not above, as below: the settings are checked at each start, and these only when someone asks.
    import requests

    url = f"http://127.0.0.1:{settings.PORT}" if not settings.DEVELOPMENT else settings.PUBLIC_URL
    try:
        answer = requests.get(f"{url}/readyz", timeout=_PATIENCE, allow_redirects=False)
    except requests.RequestException:
        yield Diagnosis.warning(
            "server", f"nothing answers at {url} on this machine", "gateway server, or what `Procfile` lists"
        )
        return
    if answer.status_code == requests.codes.ok:
        yield Diagnosis.ok("server", f"{url} is ready")
    else:
        yield Diagnosis.warning("server", f"{url} is not ready ({answer.status_code}): {answer.text[:100]}")


def find_collector() -> Iterator[Diagnosis]:
    """Yield whether the collector takes what it is sent: a message without a span."""
    import requests

    target = settings.TELEMETRY
    if not target.endpoint:
        yield Diagnosis.ok("telemetry", "off: OTEL_EXPORTER_OTLP_ENDPOINT is not set")
        return
    headers = {"Content-Type": "application/x-protobuf", **target.headers}
    try:
        answer = requests.post(
            f"{target.endpoint}/v1/traces", data=b"", headers=headers, timeout=_PATIENCE, allow_redirects=False
        )
    except requests.RequestException as error:
        yield Diagnosis.warning(
            "telemetry", f"the collector does not answer ({type(error).__name__})", "traces are dropped"
        )
        return
    if answer.ok:
        yield Diagnosis.ok("telemetry", "the collector takes traces")
    else:
        yield Diagnosis.warning(
            "telemetry", f"the collector answers {answer.status_code}", "look at OTEL_EXPORTER_OTLP_HEADERS"
        )


def find_backlog() -> Iterator[Diagnosis]:
    """Yield that records cannot be stored, for which new requests are refused."""
    if is_any_process_backlogged():
        message = "Records cannot be stored: neither the store nor the disk takes them, and new requests are refused"
        yield Diagnosis.error("records", message)


def find_low_disk() -> Iterator[Diagnosis]:
    """Yield that little space is left, without a figure: for answers that need no key."""
    if disk_space.is_low():
        yield Diagnosis.warning("disk", "Little space is left")
