"""Diagnosis and check: the values of which the list of checks is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.core.checks import CheckMessage


class State(Enum):
    """The state of a subject; its value is printed, in JSON too."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A finding about one subject: its state, a description, and the fix if one is needed.

    `code` is its identifier among Django's system checks, for findings that keep a process from starting.
    """

    subject: str
    state: State
    message: str
    fix: str = ""
    code: str = ""

    @classmethod
    def ok(cls, subject: str, message: str) -> Diagnosis:
        """Return a finding without a problem."""
        return cls(subject, State.OK, message)

    @classmethod
    def warning(cls, subject: str, message: str, fix: str = "", *, code: str = "") -> Diagnosis:
        """Return a problem with which the product works."""
        return cls(subject, State.WARNING, message, fix, code)

    @classmethod
    def error(cls, subject: str, message: str, fix: str = "", *, code: str = "") -> Diagnosis:
        """Return a problem with which the product cannot work, or is not safe."""
        return cls(subject, State.ERROR, message, fix, code)

    @property
    def is_error(self) -> bool:
        """Whether the product cannot work like this."""
        return self.state is State.ERROR

    def as_django(self) -> CheckMessage:
        """Return it as a message of Django's system checks."""
        # Here and not above: the check at the start of the server does without, and the start waits for it.
        from django.core.checks import Error, Warning

        return (Error if self.is_error else Warning)(self.message, hint=self.fix or None, id=self.code or None)


class Stage(Flag):
    """When a check is made."""

    # Before a process serves; no store is asked.
    START = auto()
    # Before a deployment is prepared, and by `check --deploy`.
    DEPLOY = auto()
    # All the time, of a process that serves: by `GET /`, `GET /readyz` and the operators' dashboard.
    HEALTH = auto()
    # By the operators' dashboard.
    DASHBOARD = auto()
    # By `gateway doctor`.
    DOCTOR = auto()


@dataclass(frozen=True, slots=True)
class Check:
    """One check: the stages at which it is made, and a function that returns its findings.

    `needs` names the check without whose success this one cannot say anything. `optional` tells how the product goes on
    without the subject, whose failure is a warning then. Unless `refuses_development`, a development server starts in
    spite of it; the doctor reports it always. The health check of a remote subject is bounded in time and shared.
    """

    name: str
    stages: Stage
    find: Callable[[], Iterable[Diagnosis]]
    needs: str = ""
    optional: str = ""
    refuses_development: bool = True
    is_remote: bool = False
