"""Fuzz targets: a reader of outside bytes, the shape of its input, and the place of its seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Literal

CORPUS = Path(__file__).parent / "corpus"
# How inputs are changed: as bytes; as one JSON value; as server-sent events; as lines of a name and a JSON value.
Shape = Literal["bytes", "json", "sse", "lines"]


@dataclass
class Target:
    """A reader. `run` returns when it kept its promises about an input, and raises whatever it did instead."""

    name: str
    run: Callable[[bytes], None]
    found: Callable[[], list[bytes]]
    shape: Shape = "bytes"
    # Executions in one run of the test suite.
    runs: int = 400
    _kept: list[Path] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """Where its kept seeds are: what once broke it."""
        return CORPUS / self.name

    @property
    def kept(self) -> list[Path]:
        """The files of its kept seeds."""
        return sorted(path for path in self.folder.glob("*") if path.is_file())

    @cached_property
    def seeds(self) -> list[bytes]:
        """The inputs from which mutations begin: good ones, small ones first, and the kept ones."""
        known: dict[bytes, None] = dict.fromkeys(path.read_bytes() for path in self.kept)
        known.update(dict.fromkeys(sorted(self.found(), key=len)))
        return list(known) or [b""]

    def keep(self, data: bytes) -> Path:
        """Write an input to the kept seeds; return its file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / hashlib.sha256(data).hexdigest()[:12]
        path.write_bytes(data)
        return path


def all_targets() -> dict[str, Target]:
    """Return every target of every module in `targets`, by name."""
    package = import_module("tests.fuzz.targets")
    modules = [import_module(f"{package.__name__}.{name}") for _, name, _ in iter_modules(package.__path__)]
    targets = [target for module in modules for target in module.TARGETS]
    assert len({target.name for target in targets}) == len(targets)
    return {target.name: target for target in targets}


def pieces_of(data: bytes, salt: int = 0) -> Iterator[bytes]:
    """Yield the data in pieces whose sizes depend on the data alone, so that a crash can be repeated."""
    digest = hashlib.sha256(data + bytes([salt])).digest()
    at, turn = 0, 0
    while at < len(data):
        size = 1 + digest[turn % 32] % (3 if salt == 0 else 97)
        yield data[at : at + size]
        at, turn = at + size, turn + 1
