"""Diagnosis: the doctor's finding about one subject, and how serious it is. Plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """The state of a subject; its value is printed, in JSON too."""

    WELL = "ok"
    DOUBTFUL = "warning"
    WRONG = "error"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One subject: its state, a description, and the fix if one is needed."""

    subject: str
    state: State
    told: str
    mend: str = ""


def well(subject: str, told: str) -> Diagnosis:
    """Return a finding without a problem."""
    return Diagnosis(subject, State.WELL, told)


def doubtful(subject: str, told: str, mend: str = "") -> Diagnosis:
    """Return a warning."""
    return Diagnosis(subject, State.DOUBTFUL, told, mend)


def wrong(subject: str, told: str, mend: str = "") -> Diagnosis:
    """Return an error: the product cannot work."""
    return Diagnosis(subject, State.WRONG, told, mend)
