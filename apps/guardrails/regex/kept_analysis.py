"""Kept analysis: the results of analyzing the rules' patterns, in a file, so that a start does not compute them again.

The file is beside Python's bytecode and treated like it: any process may write it, none needs it, and one that was
computed by other source code, by another Python or RE2, or is damaged, counts as absent. A function is kept by its
decorator, and only within `analysis_kept`: patterns of organizations never get into the file.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

import msgspec

_Result = TypeVar("_Result")
# Encoded results by pattern, by the name of the function.
_Results = dict[str, dict[str, msgspec.Raw]]
# The folder of the guardrails; these in it hold the kept functions and all code that they call.
_GUARDRAILS: Final = Path(__file__).parents[1]
_SOURCES: Final = ("regex", "matching")
_FILE: Final = Path(importlib.util.cache_from_source(__file__)).with_suffix(".msgpack")


class _File(msgspec.Struct):
    computed_by: str
    results: _Results


class _Analysis:
    """The results of one load of the rules: those of the file, and those that were asked for.

    They stay encoded, and each is decoded when it is asked for: all at once would leave megabytes of freed memory.
    """

    def __init__(self, file: _Results) -> None:
        self._file = file
        self._types: dict[str, Any] = {}
        self.asked: _Results = {}
        # Whether the file lacked a result.
        self.has_news = False

    def result(self, function: Callable[[str], _Result], pattern: str) -> _Result:
        """Return what the function returns for a pattern."""
        name = function.__qualname__
        asked = self.asked.setdefault(name, {})
        encoded = asked.get(pattern) or self._file.get(name, {}).get(pattern)
        if encoded is not None:
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                found: _Result = msgspec.msgpack.decode(encoded, type=self._type_of(function))
                asked[pattern] = encoded
                return found
        found = function(pattern)
        asked[pattern] = msgspec.Raw(msgspec.msgpack.encode(found))
        self.has_news = True
        return found

    def _type_of(self, function: Callable[[str], object]) -> Any:
        name = function.__qualname__
        if name not in self._types:
            self._types[name] = get_type_hints(function)["return"]
        return self._types[name]


_current: ContextVar[_Analysis | None] = ContextVar("kept_analysis", default=None)


def keep_results(function: Callable[[str], _Result]) -> Callable[[str], _Result]:
    """Keep the results of a pure function of a pattern, within `analysis_kept`."""

    @functools.wraps(function)
    def find(pattern: str) -> _Result:
        analysis = _current.get()
        return function(pattern) if analysis is None else analysis.result(function, pattern)

    return find


@contextmanager
def analysis_kept(file: Path = _FILE) -> Iterator[None]:
    """Load all rules within the block: take kept results from the file, and renew it if it lacks one."""
    computed_by = _source_digest()
    analysis = _Analysis(_read(file, computed_by))
    token = _current.set(analysis)
    try:
        yield
    finally:
        _current.reset(token)
    if analysis.has_news and not sys.dont_write_bytecode:
        _write(file, computed_by, analysis.asked)


def _source_digest() -> str:
    """Return a digest of everything beside a pattern that results depend on."""
    digest = hashlib.sha256(f"{sys.version} {version('google-re2')}".encode())
    for source in sorted(path for folder in _SOURCES for path in (_GUARDRAILS / folder).glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def _read(file: Path, computed_by: str) -> _Results:
    with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        content = msgspec.msgpack.decode(file.read_bytes(), type=_File)
        if content.computed_by == computed_by:
            return content.results
    return {}


def _write(file: Path, computed_by: str, results: _Results) -> None:
    draft = file.with_suffix(f".{os.getpid()}")
    # An installed package may belong to another user, and a disk may be full.
    with suppress(OSError):
        file.parent.mkdir(exist_ok=True)
        try:
            draft.write_bytes(msgspec.msgpack.encode(_File(computed_by, results)))
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)
