"""The form of an offer's prices in the admin, sent as an operator does."""

from __future__ import annotations

from typing import Any

from django.test import Client


def save_prices(client: Client, path: str, answers: dict[str, str]) -> Any:
    """Send the form, look at the shown costs, and send it again; return the last answer."""
    shown = client.post(path, answers).context["adminform"].form
    assert shown.errors["__all__"][0] == "Not saved yet. Check the new prices, then save again.", shown.errors
    return client.post(path, {**answers, "seen_prices": shown["seen_prices"].value()})
