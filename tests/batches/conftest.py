"""Callers of organizations that keep content, and official clients that talk to the gateway in this process."""

from __future__ import annotations

from tests.responses.conftest import clients, keeper, openai
from tests.support.upstream import caller, sandbox_url

__all__ = ["caller", "clients", "keeper", "openai", "sandbox_url"]
