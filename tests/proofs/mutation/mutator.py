"""The mutator: rewrites a module so that each of its mutants can be switched on by its number.

An expression `a < b` becomes `a <= b if __mutant__(7) else a < b`, a statement becomes a branch of an `if`. Not mutated
are what runs at import (constants, defaults, decorators, annotations), texts (Lua and SQL among them), and log lines.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Final, TypeVar

SWITCH: Final = "__mutant__"
_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}
_CALLED: Final = {"min": "max", "max": "min", "any": "all", "all": "any", "nanos_up": "nanos_down"}
# Their statements tell people of what happens, and decide nothing.
_TOLD: Final = ("log.",)
Tree = TypeVar("Tree", bound=ast.AST)


@dataclass(frozen=True)
class Mutant:
    """One fault: its number, its module, function and line, and what it changes.

    `name` stays the same while its function does, wherever that is in its module.
    """

    number: int
    module: str
    function: str
    line: int
    change: str
    ordinal: int

    @property
    def name(self) -> str:
        """The module, the function, the change, and which of the same changes in the function it is."""
        return f"{self.module}:{self.function}: {self.change} #{self.ordinal}"


class Mutator(ast.NodeTransformer):
    """Puts the mutants of one module into its tree; their numbers begin at `first`."""

    def __init__(self, module: str, first: int) -> None:
        self.mutants: list[Mutant] = []
        self._module, self._first = module, first
        self._function: list[str] = []
        self._is_body = False
        self._counts: Counter[tuple[str, str]] = Counter()

    # --- parts that are entered

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Mutate the body of a function, and nothing else of it."""
        before, self._is_body = self._is_body, True
        self._function.append(node.name)
        node.body = self._block(node.body)
        self._function.pop()
        self._is_body = before
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Mutate the methods of a class."""
        before, self._is_body = self._is_body, False
        self._function.append(node.name)
        node.body = self._block(node.body)
        self._function.pop()
        self._is_body = before
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Leave texts as they are."""
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Mutate the value alone."""
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        """Leave defaults of lambdas as they are."""
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        """Mutate guard and body; a pattern is no expression."""
        if node.guard is not None:
            node.guard = self.visit(node.guard)
        node.body = self._block(node.body)
        return node

    # --- expressions

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Move the bound, or turn the comparison round."""
        copies = []
        for at, operator in enumerate(node.ops):
            if (other := _COMPARED.get(type(operator))) is not None:
                changed = deepcopy(node)
                changed.ops[at] = other()
                copies.append((f"{_sign(operator)} -> {_sign(other())}", changed))
        return self._switched(node, copies)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Exchange `and` and `or`."""
        changed = deepcopy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        words = "and -> or" if isinstance(node.op, ast.And) else "or -> and"
        return self._switched(node, [(words, changed)])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Leave out `not` and minus."""
        if isinstance(node.op, ast.Not | ast.USub) and not isinstance(node.operand, ast.Constant):
            return self._switched(node, [(f"without {_sign(node.op)}", deepcopy(node.operand))])
        return self._switched(node, [])

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Compute with another operator."""
        other = _COMPUTED.get(type(node.op))
        if other is None or isinstance(node.left, ast.JoinedStr):
            return self._switched(node, [])
        changed = deepcopy(node)
        changed.op = other()
        return self._switched(node, [(f"{_sign(node.op)} -> {_sign(other())}", changed)])

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Add one to a number, and turn a boolean round."""
        if isinstance(node.value, bool):
            return self._switched(node, [(f"{node.value} -> {not node.value}", ast.Constant(not node.value))])
        if isinstance(node.value, int | float):
            return self._switched(node, [(f"{node.value} -> {node.value + 1}", ast.Constant(node.value + 1))])
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Call the opposite function."""
        if isinstance(node.func, ast.Name) and (other := _CALLED.get(node.func.id)):
            changed = deepcopy(node)
            changed.func = ast.Name(other, ast.Load())
            return self._switched(node, [(f"{node.func.id} -> {other}", changed)])
        return self._switched(node, [])

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Take the other value."""
        return self._switched(node, list(self._negated(node)))

    # --- statements

    def visit_If(self, node: ast.If) -> ast.AST:
        """Take the other branch."""
        negated = next(self._negated(node), None) if self._is_body else None
        number = self._number(negated[0], node.lineno) if negated else 0
        node.test = self.visit(node.test)
        if negated:
            test = ast.IfExp(_call_of_switch(number), negated[1].test, node.test)
            node.test = ast.copy_location(test, node.test)
        node.body, node.orelse = self._block(node.body), self._block(node.orelse)
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Enter blocks as blocks."""
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, self._block(value))
            elif isinstance(value, list):
                setattr(node, name, [self.visit(one) if isinstance(one, ast.AST) else one for one in value])
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                setattr(node, name, self.visit(value))
        return node

    def _block(self, block: list[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for statement in block:
            if self._is_body and _is_left_alone(statement):
                made.append(statement)
                continue
            words = _words_of_removal(statement) if self._is_body else ""
            number = self._number(words, statement.lineno) if words else 0
            entered = self.visit(statement)
            if words:
                test = _call_of_switch(number)
                entered = ast.If(test=test, body=[ast.Pass()], orelse=[entered])
            made.append(ast.copy_location(entered, statement))
        return made

    def _negated(self, node: ast.If | ast.IfExp) -> Iterator[tuple[str, ast.If | ast.IfExp]]:
        """Yield the node with the opposite condition; those that are mutated themselves need none."""
        if isinstance(node.test, ast.Name | ast.Attribute | ast.Call | ast.NamedExpr):
            changed = deepcopy(node)
            changed.test = ast.UnaryOp(ast.Not(), changed.test)
            yield "condition -> not condition", changed

    def _switched(self, node: Tree, copies: list[tuple[str, ast.expr]]) -> ast.expr:
        """Return the node, entered, behind the switches of its mutants."""
        line = getattr(node, "lineno", 0)
        numbers = [self._number(words, line) if self._is_body else 0 for words, _ in copies]
        found: ast.expr = self.generic_visit(node)  # type: ignore[assignment]  # an expression stays one
        if not self._is_body:
            return found
        for number, (_, changed) in zip(numbers, copies, strict=True):
            found = ast.copy_location(ast.IfExp(_call_of_switch(number), changed, found), node)
        return found

    def _number(self, words: str, line: int) -> int:
        function = ".".join(self._function)
        self._counts[function, words] += 1
        number = self._first + len(self.mutants)
        self.mutants.append(Mutant(number, self._module, function, line, words, self._counts[function, words]))
        return number


def mutate(module: str, source: str, first: int = 1) -> tuple[ast.Module, list[Mutant]]:
    """Return the tree of a module with all its mutants behind switches, and the mutants."""
    mutator = Mutator(module, first)
    tree = mutator.visit(ast.parse(source))
    return ast.fix_missing_locations(tree), mutator.mutants


def _call_of_switch(number: int) -> ast.expr:
    return ast.Call(ast.Name(SWITCH, ast.Load()), [ast.Constant(number)], [])


def _words_of_removal(statement: ast.stmt) -> str:
    """Return what the removal of a statement is called; empty for one that is not removed."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return f"without {ast.unparse(statement.value.func)[:60]}()"
    if isinstance(statement, ast.AugAssign):
        return f"without {ast.unparse(statement.target)} {_sign(statement.op)}="
    if isinstance(statement, ast.Raise) and statement.exc is not None:
        return "without raise"
    return "without continue" if isinstance(statement, ast.Continue) else ""


def _is_left_alone(statement: ast.stmt) -> bool:
    """Return whether a statement is a docstring, a log line, or an assertion for the type checker."""
    if isinstance(statement, ast.Assert | ast.Global | ast.Nonlocal | ast.Import | ast.ImportFrom):
        return True
    if not isinstance(statement, ast.Expr):
        return False
    if isinstance(statement.value, ast.Constant):
        return True
    return isinstance(statement.value, ast.Call) and ast.unparse(statement.value.func).startswith(_TOLD)


_SIGNS: Final[dict[type[ast.AST], str]] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is",
    ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in", ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/",
    ast.FloorDiv: "//", ast.Mod: "%", ast.Not: "not", ast.USub: "-", ast.BitOr: "|", ast.BitAnd: "&",
}  # fmt: skip


def _sign(operator: ast.AST) -> str:
    return _SIGNS.get(type(operator), type(operator).__name__)
