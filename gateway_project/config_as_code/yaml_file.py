"""Strict YAML: plain data within bounds, read with the place of each error, and written so that it reads the same.

Anchors, aliases, tags and repeated names are refused. A word without quotes is null, true, false or a number as in
JSON, and text otherwise: `on`, `no`, `12:30` and `2027-01-01` are texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

MAX_BYTES: Final = 4 * 1024 * 1024
MAX_DEPTH: Final = 24
MAX_VALUES: Final = 200_000
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,3})?")
_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# Line breaks beside the usual one: without double quotes they are read as blanks.
_RARE_BREAKS: Final = "\x85\u2028\u2029"
# libyaml's reader takes a tenth of the time.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ConfigError(Exception):
    """A problem to show to the user; `place` is a path in the file such as `projects[1].keys[0].usageLimit`."""

    def __init__(self, place: str, message: str) -> None:
        super().__init__(f"{place}: {message}" if place else message)
        self.place = place


class _Open:
    """A list or an object of which not everything is read."""

    __slots__ = ("name", "place", "value")

    def __init__(self, value: list[Any] | dict[str, Any], place: str) -> None:
        self.value, self.place = value, place
        # The name that has been read and whose value comes next.
        self.name: str | None = None

    @property
    def next_place(self) -> str:
        """The path of the value that comes next."""
        if isinstance(self.value, list):
            return f"{self.place}[{len(self.value)}]"
        return f"{self.place}.{self.name}".lstrip(".") if self.name is not None else self.place


def read_yaml(data: bytes) -> Any:
    """Return the data of a file. Raises ConfigError with the path of the first problem."""
    if len(data) > MAX_BYTES:
        raise ConfigError("", f"The file is larger than {MAX_BYTES // 1024 // 1024} MB")
    try:
        return _build(yaml.parse(data.decode("utf-8-sig"), Loader=_LOADER))
    except UnicodeDecodeError as error:
        raise ConfigError("", "The file is not UTF-8") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError("", f"The file is not YAML: {where}{error.problem or error.context}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError("", f"The file is not YAML: {str(error).splitlines()[0]}") from error


def write_yaml(value: Any) -> str:
    """Return the text of a file with these data, which `read_yaml` reads as they are."""
    text: str = yaml.dump(
        value, Dumper=_Writer, sort_keys=False, allow_unicode=True, default_flow_style=False, width=100
    )
    return text


def _build(events: Iterator[Any]) -> Any:
    documents: list[Any] = []
    root = _Open(documents, "")
    stack, count = [root], 0
    for event in events:
        top = stack[-1]
        place = "" if top is root else top.next_place
        if isinstance(event, yaml.DocumentStartEvent) and documents:
            raise ConfigError("", "The file has more than one document (`---`)")
        if not isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
            continue
        count += 1
        if count > MAX_VALUES:
            raise ConfigError(place, f"The file has more than {MAX_VALUES} values")
        value = _value_of(event, place)
        if isinstance(top.value, dict) and top.name is None:
            top.name = _name(value, event, top)
            continue
        if isinstance(top.value, list):
            top.value.append(value)
        else:
            top.value[str(top.name)] = value
            top.name = None
        if isinstance(value, list | dict):
            if len(stack) > MAX_DEPTH:
                raise ConfigError(place, f"Nested deeper than {MAX_DEPTH} levels")
            stack.append(_Open(value, place))
    return documents[0] if documents else None


def _name(value: Any, event: Any, top: _Open) -> str:
    """Return the name of a member. Raises ConfigError."""
    if not isinstance(event, yaml.ScalarEvent):
        raise ConfigError(top.place, "A name must be text")
    name = value if isinstance(value, str) else str(event.value)
    if name in top.value:
        raise ConfigError(f"{top.place}.{name}".lstrip("."), "Given twice")
    return name


def _value_of(event: Any, place: str) -> Any:
    """Return the value that an event begins. Raises ConfigError."""
    if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
        raise ConfigError(place, "Anchors and aliases (& and *) are not supported; write the value out")
    if event.tag is not None:
        raise ConfigError(place, "Tags (!) are not supported")
    if isinstance(event, yaml.SequenceStartEvent):
        return []
    if isinstance(event, yaml.MappingStartEvent):
        return {}
    return str(event.value) if event.style else _plain(str(event.value))


def _plain(text: str) -> Any:
    """Return the value of a word without quotes."""
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


class _Writer(yaml.SafeDumper):
    """Writes texts in quotes where they would be read as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write repeated values out."""
        return True


def _write_text(writer: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_plain = _plain(text) == text and not any(sign in text for sign in _RARE_BREAKS)
    return writer.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_plain else '"')


_Writer.add_representer(str, _write_text)
