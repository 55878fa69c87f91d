"""The outcome of a fault: clients' answers compared with log, ledger, balances and holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from tests.chaos.clients import Clients
from tests.chaos.scene import ALLOWANCE, MODEST, Scene
from tests.proofs import invariants
from tests.proofs.invariants import Answer, LogRow, Snapshot
from tests.stack.books import Books, Row

# Seconds that a refusal may keep a client away: longer is locked out.
MAX_AWAY = 60.0
HEADER = (
    "| fault | struck | asked | answered | failed by the provider | refused | broken off | hung | lost | doubled "
    "| wrong | overspent, USD | slowest, s | well again after, s | verdict |\n"
    "|---|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---|"
)


@dataclass
class Score:
    """One line of the card. `problems` lists the broken promises in words."""

    fault: str
    struck: int
    asked: int
    answered: int
    failed: int
    refused: Counter[int]
    wordless: int
    broken: int
    hung: int
    lost: list[str]
    doubled: list[str]
    wrong: list[str]
    overspent: Decimal
    slowest: float
    recovery: float | None
    problems: list[str] = field(default_factory=list)

    def row(self) -> str:
        """Return the line."""
        refused = ", ".join(f"{number} x {status}" for status, number in sorted(self.refused.items())) or "0"
        if self.wordless:
            refused += f" ({self.wordless} without Retry-After)"
        words = [
            *(self.fault, self.struck, self.asked, self.answered, self.failed, refused, self.broken, self.hung),
            *(len(self.lost), len(self.doubled), len(self.wrong), f"{self.overspent.normalize():f}"),
            *(f"{self.slowest:.1f}", "never" if self.recovery is None else f"{self.recovery:.1f}"),
            "; ".join(self.problems) or "kept",
        ]
        return f"| {' | '.join(map(str, words))} |"


def skipped(fault: str, why: str) -> str:
    """Return the line of a fault that this machine cannot have."""
    return f"| {fault} | 0 | {'- | ' * 12}skipped: {why} |"


@dataclass
class Before:
    """How things stood when the clients began."""

    rows: set[str]
    credits: dict[str, Decimal]
    limited: str


def score(
    fault: str, struck: int, scene: Scene, clients: Clients, books: Books, before: Before, recovery: float | None
) -> Score:
    """Compare clients' answers with the books."""
    heard, seen = clients.heard, clients.seen
    rows = [row for row in books.rows if row.id not in before.rows and row.request_id in seen.asked]
    found = Counter(row.request_id for row in rows)
    credits = scene.credits()
    card = Score(
        fault=fault,
        struck=struck,
        asked=len(seen.asked),
        answered=len(heard.costs) + len(seen.complete),
        failed=len(heard.failed),
        refused=Counter(seen.refused),
        wordless=seen.wordless,
        broken=len(heard.broken | heard.parts | heard.unreserved_parts),
        hung=len(heard.hung),
        lost=sorted((set(heard.costs) | seen.complete | heard.parts | heard.failed) - set(found)),
        doubled=[request_id for request_id, number in found.items() if number > 1],
        wrong=_wrong(rows, books, clients),
        overspent=_overspent(scene, books, credits, before.limited),
        slowest=heard.slowest,
        recovery=recovery,
    )
    _judge(card, scene, books, seen.longest_away)
    return card


def _wrong(rows: Sequence[Row], books: Books, clients: Clients) -> list[str]:
    """Return the requests whose row differs from the cost in the answer, or from the charge."""
    known = {row.id: row.request_id for row in rows}
    seen = Snapshot(
        rows=[
            LogRow(row.id, row.request_id, row.organization, row.key, row.cost, row.storage, row.mode == "credits")
            for row in rows
        ],
        movements=[one for one in books.movements if one.reference in known],
        answers=[
            *(Answer(request, cost) for request, cost in clients.heard.costs.items()),
            *(Answer(request, refused=True) for request in clients.heard.refused),
        ],
    )
    judged = (
        invariants.answers_state_their_cost,
        invariants.rows_are_charged_once,
        invariants.refusals_cost_nothing,
    )
    return sorted({known.get(one.subject, one.subject) for one in invariants.breaches(seen, judged)})


def _overspent(scene: Scene, books: Books, credits: dict[str, Decimal], limited: str) -> Decimal:
    """Return the amount spent beyond credits and limits, less the allowance for times when they cannot be checked."""
    beyond = [-credits[scene.modest], -credits[scene.empty], books.usage.get(limited, Decimal(0)) - MODEST]
    return max(Decimal(0), *(amount - ALLOWANCE * scene.workers for amount in beyond))


def _judge(card: Score, scene: Scene, books: Books, longest_away: float) -> None:
    """Add each broken promise to the problems."""
    problems = card.problems
    for words, ids in (("lost", card.lost), ("doubled", card.doubled), ("wrong", card.wrong)):
        if ids:
            problems.append(f"{len(ids)} {words}, as {ids[0]}")
    if card.overspent:
        problems.append("spent beyond means")
    if card.wordless:
        problems.append("refusals that do not say when to come again")
    if odd := set(card.refused) - {429, 503}:
        problems.append(f"refused with {', '.join(map(str, sorted(odd)))} who might be served")
    if longest_away > MAX_AWAY:
        problems.append(f"told to stay away for {longest_away:.0f} s")
    if card.hung:
        problems.append(f"{card.hung} hung")
    if books.left:
        problems.append(f"left over: {', '.join(f'{name} {count}' for name, count in list(books.left.items())[:3])}")
    if books.differences:
        problems.append(f"reconciliation differs: {books.differences}")
    if not card.answered:
        problems.append("nobody was answered")
    if card.recovery is None:
        problems.append("not well again")
    problems += scene.notes
    scene.notes.clear()
