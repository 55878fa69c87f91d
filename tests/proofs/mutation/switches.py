"""Switches of mutants: an import hook compiles the chosen modules with their mutants; one at a time is switched on."""
# alone: it has to be installed before Django and the modules are imported, and imports neither

from __future__ import annotations

import builtins
import sys
from ast import Module
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from tests.proofs.mutation.mutator import SWITCH, Mutant, mutate


class Switches:
    """All mutants of this process, which one is on (0: none), and which were reached since `reached` was emptied."""

    def __init__(self) -> None:
        self.mutants: dict[int, Mutant] = {}
        self.active = 0
        self.reached: set[int] = set()

    def is_on(self, number: int) -> bool:
        """Return whether a mutant is on, and note that its place was reached."""
        self.reached.add(number)
        return number == self.active


SWITCHES = Switches()


class _Loader(SourceFileLoader):
    """Returns a module's code with its mutants, and stores no bytecode of it."""

    def __init__(self, fullname: str, path: str, tree: Module) -> None:
        super().__init__(fullname, path)
        self._tree = tree

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = compile(self._tree, self.path, "exec", dont_inherit=True)
        return code


class _Finder(MetaPathFinder):
    """Finds the modules that were mutated, by their trees."""

    def __init__(self, trees: Mapping[str, Module]) -> None:
        self._trees = trees

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a mutated module, else none."""
        tree = self._trees.get(fullname)
        spec = None if tree is None else PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None and tree is not None:
            spec.loader = _Loader(fullname, spec.origin, tree)
        return spec


def install(modules: Sequence[str]) -> None:
    """Compile these modules with their mutants from now on. They must not be imported yet."""
    assert not set(modules) & sys.modules.keys()
    trees = {}
    for module in sorted(modules):
        source = Path(*module.split(".")).with_suffix(".py").read_text()
        trees[module], mutants = mutate(module, source, 1 + len(SWITCHES.mutants))
        SWITCHES.mutants |= {one.number: one for one in mutants}
    setattr(builtins, SWITCH, SWITCHES.is_on)
    sys.meta_path.insert(0, _Finder(trees))
