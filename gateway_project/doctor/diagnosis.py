"""Diagnosis: what the doctor tells of one subject, and how bad it is. Plain values; examines nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """How a subject does; its value is the word in JSON."""

    WELL = "ok"
    DOUBTFUL = "warning"
    WRONG = "error"

    @property
    def word(self) -> str:
        """The word at the beginning of a line for people."""
        return {"ok": "ok", "warning": "doubt", "error": "WRONG"}[self.value]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One subject: how it does, in words, and what would mend it where anything needs mending."""

    subject: str
    state: State
    told: str
    mend: str = ""


def well(subject: str, told: str) -> Diagnosis:
    """Return a finding that nothing is to be done about."""
    return Diagnosis(subject, State.WELL, told)


def doubtful(subject: str, told: str, mend: str = "") -> Diagnosis:
    """Return a finding that somebody should look at."""
    return Diagnosis(subject, State.DOUBTFUL, told, mend)


def wrong(subject: str, told: str, mend: str = "") -> Diagnosis:
    """Return a finding that keeps the product from its work."""
    return Diagnosis(subject, State.WRONG, told, mend)
