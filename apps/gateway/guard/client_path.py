"""Client path: the place of a blocked text in the body that the client sent, by the client's own names.

A chat's own paths name parts that the client may have written otherwise: as one string, as instructions beside the
conversation, in another format. Searched only once something is blocked. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from apps.kernel.errors import InvalidRequest

# Fields that come first in a chat, wherever they are in a body; the rest keeps its order.
_INSTRUCTIONS: Final = frozenset({"system", "systemInstruction", "system_instruction", "instructions"})
# Fields that say no text of the conversation, though they may say the same.
_BESIDE: Final = frozenset({"metadata", "model", "user", "safety_identifier", "prompt_cache_key", "stop"})
# Names that a path may have; a value below another name is reported by the place of the value around it.
_NAME: Final = re.compile(r"[A-Za-z_$][\w$-]{0,63}", re.ASCII)
_MAX_NAMES: Final = 16


class UnreadableText(InvalidRequest):
    """A text of a chat that holds more than can be looked at: where, why, and what the client may have written."""

    def __init__(self, path: str, why: str, said: Sequence[Any] = ()) -> None:
        super().__init__(f"{path}: {why}", param=path.partition("[")[0].partition(".")[0])
        self.why, self.said = why, said

    def at_client_path(self, body: bytes) -> UnreadableText:
        """Return it with the path that the client's body has for it, where it has one."""
        path = find_client_path(body, self.said, 0, "") if self.said else None
        return self if path is None else UnreadableText(path, self.why, self.said)


# A name or an index, and the place of what holds it; None for the body itself.
_Place = tuple[Any, str | int] | None


def find_client_path(body: bytes, said: Sequence[Any], before: int, matched: str) -> str | None:
    """Return the path of a value (a text in one of these forms, or an object with at least these members), after so
    many equal ones. Within an object it is the path of the string that contains the match.

    Without forms, any string that contains the match is taken. None where nothing is found.
    """
    try:
        sent = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    found: tuple[Any, _Place] | None = None
    for node, place in _nodes(sent, None):
        if any(_says(node, form) for form in said) if said else _has(node, matched):
            found = node, place
            if before == 0:
                break
            before -= 1
    if found is None:
        return None
    node, place = found
    inner = (place for one, place in _nodes(node, place) if _has(one, matched))
    return _written(place if isinstance(node, str) else next(inner, place))


def _nodes(value: Any, place: _Place) -> Iterator[tuple[Any, _Place]]:
    """Yield a value and all in it, each before what it holds, in the order of a chat."""
    left = [(value, place)]
    while left:
        node, here = left.pop()
        yield node, here
        if isinstance(node, dict):
            names = list(node)
            if here is None:
                names = sorted(
                    (name for name in names if name not in _BESIDE), key=lambda name: name not in _INSTRUCTIONS
                )
            left += [(node[name], (here, name)) for name in reversed(names)]
        elif isinstance(node, list):
            left += [(inner, (here, index)) for index, inner in reversed(list(enumerate(node)))]


def _says(node: Any, form: Any) -> bool:
    if isinstance(form, dict) and isinstance(node, dict):
        return bool(form) and len(form) <= len(node) and all(name in node and node[name] == form[name] for name in form)
    return type(node) is type(form) and bool(node == form)


def _has(node: Any, matched: str) -> bool:
    return isinstance(node, str) and bool(matched) and matched in node


def _written(place: _Place) -> str | None:
    keys: list[str | int] = []
    while place is not None:
        place, key = place
        keys.append(key)
    path = ""
    for key in keys[: -_MAX_NAMES - 1 : -1]:
        if isinstance(key, str) and not _NAME.fullmatch(key):
            break
        path += f"[{key}]" if isinstance(key, int) else f".{key}" if path else key
    return path or None
