"""The configuration reference: current, complete, and right about what it reads from the code."""

from __future__ import annotations

import pytest

from gateway_project.configuration import configuration_reference
from gateway_project.configuration.data_directory import PROJECT

TEXT = (PROJECT / "docs" / "configuration.md").read_text()


def test_the_document_is_current(capfd: pytest.CaptureFixture[str]) -> None:
    """Mended by `python -m gateway_project.configuration.configuration_reference --write`."""
    assert configuration_reference.main([]) == 0, capfd.readouterr().out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("GATEWAY_MODE", "`development` or `production`"),
        ("`PORT`", "a whole number from 1 to 65,535"),
        ("WEB_WORKERS", "a whole number above 0"),
        ("QUEUE_TIME_LIMIT", "seconds, at most 60"),
        ("BODY_LIMIT", "a whole number from 1,024 to 1,073,741,824"),
        ("OFFLINE_ALLOWANCE_USD", "USD, from 0 to 10,000"),
        (
            "REDIS_URL",
            "`redis://` or `rediss://` or `unix://` or `redis+cluster://` or `rediss+cluster://` "
            "or `redis+sentinel://` or `rediss+sentinel://`",
        ),
        ("OTEL_TRACES_SAMPLER_ARG", "a number from 0 to 1"),
        ("METRICS_PUBLIC", "true or false"),
        ("`SECRET_KEY`", "a secret"),
    ],
)
def test_what_a_variable_may_be_is_what_the_code_says(name: str, words: str) -> None:
    [row] = [line for line in TEXT.splitlines() if line.startswith("| ") and name in line.split(" | ")[0]]
    assert row.split(" | ")[1] == words


def test_it_notices_that_it_is_not_current(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(configuration_reference, "reference", lambda: "other")
    assert configuration_reference.main([]) == 1
    assert "--write" in capfd.readouterr().out
