"""The user of the embedded database on a shared machine: root picks an unprivileged one, and in production refuses."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from gateway_project.configuration.server_config import ServerConfig, StartError, refuse_shared_database
from gateway_project.embedded import postgres


def known_users(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let the machine have these users and no others."""

    def find(name: str) -> pwd.struct_passwd:
        if name not in names:
            raise KeyError(name)
        return pwd.struct_passwd((name, "x", 900, 900, "", "/", "/bin/false"))

    monkeypatch.setattr(pwd, "getpwnam", find)


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (("nobody",), "nobody"),
        (("nobody", "postgres"), "postgres"),
        (("nobody", "postgres", "model-gateway"), "model-gateway"),
    ],
)
def test_root_runs_it_as_whom_the_fewest_others_are(
    names: tuple[str, ...], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_users(monkeypatch, *names)
    assert postgres._least_shared().pw_name == chosen


@pytest.mark.parametrize(
    ("mode", "user", "url", "refused"),
    [
        ("production", 0, "", True),
        ("production", 0, "postgresql://db/gateway", False),
        ("production", 1000, "", False),
        ("development", 0, "", False),
    ],
)
def test_production_started_by_root_brings_no_database_along(
    mode: str, user: int, url: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setenv("DATABASE_URL", url)
    place = ServerConfig(Path("/nowhere"), mode, "127.0.0.1", 8000)
    if refused:
        with pytest.raises(StartError, match="set DATABASE_URL, or start the server as a user of its own"):
            refuse_shared_database(place)
    else:
        refuse_shared_database(place)
