"""OpenTelemetry's variables and URLs of stores: unsupported ones are refused by name, and no value is repeated."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from gateway_project.configuration import env
from gateway_project.configuration.telemetry_settings import TelemetrySettings

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


def told(monkeypatch: pytest.MonkeyPatch, **variables: str) -> TelemetrySettings:
    """Return the settings of these variables."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return TelemetrySettings.of_environment()


def test_without_an_endpoint_everything_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, OTEL_SERVICE_NAME="x", OTEL_TRACES_SAMPLER_ARG="0.5") == TelemetrySettings()


def test_all_that_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(
        monkeypatch,
        OTEL_EXPORTER_OTLP_ENDPOINT="https://collector.example:4318/",
        OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20abc, x-scope=acme",
        OTEL_RESOURCE_ATTRIBUTES="deployment.environment=prod",
        OTEL_METRICS_EXPORTER="none",
        OTEL_TRACES_SAMPLER_ARG="0.25",
    )
    assert found == TelemetrySettings(
        endpoint="https://collector.example:4318",
        headers={"authorization": "Bearer abc", "x-scope": "acme"},
        resource_attributes={"deployment.environment": "prod"},
        traces=True,
        sample=0.25,
    )
    assert "abc" not in repr(found)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (ENDPOINT, "collector:4318"),
        (ENDPOINT, "grpc://collector:4317"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_TRACES_SAMPLER", "always_on"),
        ("OTEL_TRACES_SAMPLER_ARG", "2"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "secret-without-equals"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b%0d%0ax: y"),
        ("OTEL_METRICS_EXPORTER", "console"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=name) as refused:
        told(monkeypatch, **{ENDPOINT: "http://collector", name: value})
    assert "secret-without-equals" not in str(refused.value)


@pytest.mark.parametrize(
    "value",
    [
        "redis+sentinel://:hunter2@one:26379/0",
        "rediss+cluster://:hunter2@one:6379",
        "redis://:hunter2@one:6379,two:6379/0",
        "hunter2",
    ],
)
def test_a_store_that_is_not_supported_is_refused_without_its_password(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("REDIS_URL", value)
    with pytest.raises(ImproperlyConfigured, match="REDIS_URL must") as refused:
        env.store_url("REDIS_URL", ("redis", "rediss", "unix"))
    assert "hunter2" not in str(refused.value)


def test_a_store_that_is_supported_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:p%2Cw@db:5432/gateway?sslmode=require")
    assert env.store_url("DATABASE_URL", ("postgresql", "postgres")).startswith("postgresql://u:p%2Cw@db")
    assert env.store_url("NOT_SET_AT_ALL", ("postgresql",), "postgresql:///x") == "postgresql:///x"
