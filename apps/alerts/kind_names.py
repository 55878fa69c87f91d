"""Kinds of alert rules: their names, parameters, severity, and words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.db import models


class KindName(models.TextChoices):
    """The kinds, with their names for people."""

    BALANCE_LOW = "balance_low", "Balance below an amount"
    BALANCE_RUNWAY = "balance_runway", "Balance lasts for few days"
    LIMIT_SHARE = "limit_share", "Share of a limit is used"
    DAILY_SPEND = "daily_spend", "Spending of a day is unusual"
    ERROR_RATE = "error_rate", "Error rate of a model or provider"
    LATENCY = "latency", "Latency of a model or provider"
    KEY_UNUSED = "key_unused", "API key is not used"
    MODEL_RETIREMENT = "model_retirement", "Model in use retires"
    PRICE_CHANGE = "price_change", "Price of a model in use changes"
    INTEGRATION_OFF = "integration_off", "Integration is switched off"
    PAYMENT_FAILED = "payment_failed", "Payment failed"


@dataclass(frozen=True, slots=True)
class KindParameters:
    """The parameters of a kind: required ones, and optional ones with their defaults.

    `is_event`: its alerts are events, which are never resolved. `severity` is one of PagerDuty's.
    """

    summary: str
    severity: str
    required: tuple[str, ...] = ()
    optional: Mapping[str, Any] | None = None
    is_event: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """All parameters."""
        return (*self.required, *(self.optional or {}))

    def summary_of(self, parameters: Mapping[str, Any]) -> str:
        """Return a rule with these parameters in a few words."""
        words = self.summary.format(**parameters)
        return f"{words} ({parameters['name']})" if parameters.get("name") else words


_ANSWERS: Final = {"min_requests": 20, "name": ""}
PARAMETERS: Final[Mapping[KindName, KindParameters]] = {
    KindName.BALANCE_LOW: KindParameters("Balance below {amount} USD", "error", ("amount",)),
    KindName.BALANCE_RUNWAY: KindParameters("Balance lasts less than {days} days", "warning", ("days",)),
    KindName.LIMIT_SHARE: KindParameters("{percent}% of a limit used", "warning", ("percent",)),
    KindName.DAILY_SPEND: KindParameters(
        "Spending of a day above {factor} times the usual, and above {floor} USD",
        "warning",
        ("factor", "floor"),
        is_event=True,
    ),
    KindName.ERROR_RATE: KindParameters(
        "Error rate of a {aspect} above {percent}% in 15 minutes", "critical", ("percent", "aspect"), _ANSWERS
    ),
    KindName.LATENCY: KindParameters(
        "p95 latency of a {aspect} above {milliseconds} ms in 15 minutes",
        "warning",
        ("milliseconds", "aspect"),
        _ANSWERS,
    ),
    KindName.KEY_UNUSED: KindParameters("API key not used for {days} days", "info", ("days",)),
    KindName.MODEL_RETIREMENT: KindParameters("Model in use retires within {days} days", "warning", ("days",)),
    KindName.PRICE_CHANGE: KindParameters("Price of a model in use changed", "info", is_event=True),
    KindName.INTEGRATION_OFF: KindParameters("Log sink, MCP server or alert destination off", "error"),
    KindName.PAYMENT_FAILED: KindParameters("Payment or top-up failed", "error", is_event=True),
}
# Kinds whose alerts are never resolved.
EVENTS: Final = [name for name, kind in PARAMETERS.items() if kind.is_event]
# The rules that an organization begins with.
DEFAULT_RULES: Final[tuple[tuple[KindName, Mapping[str, Any]], ...]] = (
    (KindName.BALANCE_LOW, {"amount": "5"}),
    (KindName.LIMIT_SHARE, {"percent": 80}),
    (KindName.LIMIT_SHARE, {"percent": 100}),
    (KindName.INTEGRATION_OFF, {}),
    (KindName.PAYMENT_FAILED, {}),
)
