"""Collects the fields of other gateways while a body is read; readers for the tables of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from apps.gateway.canonical.chat import MAX_DROPPED_FIELDS, DroppedField
from apps.gateway.dialects.reading.fields import Malformed, Record, filled_string, list_of
from apps.kernel.errors import InvalidRequest

MAX_NAME: Final = 512
NO_MEANING: Final = "a field of another gateway's that has no meaning here"
NO_PROMISE: Final = (
    "cannot be promised here, so nothing was sent; leave the field out if it may be answered all the same"
)


class RouterReading:
    """The result of one request's fields: fields of the chat (`known`), preferences, and dropped fields."""

    def __init__(self, known: Record) -> None:
        self.known = known
        self.wishes: Record = {}
        self.dropped: list[DroppedField] = []

    def drop(self, param: str, why: str = NO_MEANING) -> None:
        """Note that a field is left out; once is enough, and so is the first of very many."""
        field = DroppedField(param, why)
        if len(self.dropped) < MAX_DROPPED_FIELDS and field not in self.dropped:
            self.dropped.append(field)

    def want(self, **wishes: Any) -> None:
        """Keep preferences."""
        self.wishes.update(wishes)


Taker = Callable[[RouterReading, Any], None]


def refuse(param: str, message: str) -> NoReturn:
    """Refuse what would be another request if it were left out. Raises InvalidRequest (`unsupported_feature`)."""
    raise InvalidRequest(message, code="unsupported_feature", param=param)


def refused(name: str, message: str) -> Taker:
    """Return the taker of a field that is refused where it asks for something."""

    def take(reading: RouterReading, value: Any) -> None:
        if value not in (False, "", [], {}):
            refuse(name, message)

    return take


def dropped(name: str, why: str = NO_MEANING) -> Taker:
    """Return the taker of a field that is left out with a note."""

    def take(reading: RouterReading, value: Any) -> None:
        reading.drop(name, why)

    return take


def wish(name: str, read: Callable[[Any], Any]) -> Taker:
    """Return the taker of a field that is a preference as it stands."""
    return lambda reading, value: reading.want(**{name: read(value)})


def tuple_of(read: Callable[[Any], str], most: int) -> Callable[[Any], tuple[str, ...]]:
    """Return the reader of an array of at most so many, each kept once."""
    listed = list_of(read, most)
    return lambda value: tuple(dict.fromkeys(listed(value)))


def bounded_name(value: Any) -> str:
    """Read the name of a model or a provider."""
    if len(filled_string(value)) > MAX_NAME:
        raise Malformed(f"must be at most {MAX_NAME} characters long")
    return str(value)
