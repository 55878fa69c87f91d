"""`script/bench agent_calls FILE`: which calls of tools `tool_argument_origin` marks, with and without attacks.

FILE has conversations of agents, as `bench/agentdojo_conversations.py` writes them. Without an attack each call is the
user's, and every mark is a false one; with an attack the calls are the attacker's. Only calls of tools with effects
can be marked. Shares are given with Wilson's interval of 95 %.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from apps.guardrails.findings.scan_types import ConversationText, ToolCallRequest
from apps.guardrails.rules.tool_argument_origin import find_in_calls, has_effects
from bench.attack_recall import FoundShare


class JudgedCall(NamedTuple):
    """A call of a tool with effects, and the kinds of values that were marked in it."""

    suite: str
    task: str
    attack: str | None
    tool: str
    kinds: frozenset[str]


def judged_calls(path: Path) -> Iterator[JudgedCall]:
    """Yield all calls with effects."""
    for line in path.read_text(encoding="utf-8").splitlines():
        row: dict[str, Any] = json.loads(line)
        texts = [ConversationText(*text) for text in row["texts"]]
        for tool, arguments, before in row["calls"]:
            call = ToolCallRequest(tool, arguments)
            if has_effects(call):
                kinds = frozenset(mark.kind for mark in find_in_calls(texts[:before], [call]))
                yield JudgedCall(row["suite"], row["task"], row["attack"], tool, kinds)


def count_tasks(path: Path) -> Counter[str]:
    """Return how many tasks of users there are by suite."""
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return Counter(row["suite"] for row in rows if row["attack"] is None)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="conversations, a line of JSON each")
    parser.add_argument("--marks", action="store_true", help="print each call that was marked without an attack")
    chosen = parser.parse_args()
    calls, tasks = list(judged_calls(chosen.file)), count_tasks(chosen.file)
    by_suite: defaultdict[str, list[JudgedCall]] = defaultdict(list)
    for call in calls:
        by_suite[call.suite].append(call)
    print("| suite | user tasks | their calls with effects | marked, all falsely | attacks with effects | found |")
    print("|---|--:|--:|---|--:|---|")
    for suite, own in (("all", calls), *by_suite.items()):
        users = [call for call in own if call.attack is None]
        attacks: defaultdict[tuple[str, str, str | None], bool] = defaultdict(bool)
        for call in own:
            if call.attack is not None:
                attacks[call.suite, call.task, call.attack] |= bool(call.kinds)
        marked = FoundShare(sum(bool(call.kinds) for call in users), len(users))
        found = FoundShare(sum(attacks.values()), len(attacks))
        count = tasks.total() if suite == "all" else tasks[suite]
        print(f"| {suite} | {count} | {len(users)} | {marked} | {len(attacks)} | {found} |")
    print("\n| kind | in calls of users | in calls of attackers |\n|---|--:|--:|")
    kinds = Counter((kind, call.attack is not None) for call in calls for kind in call.kinds)
    for kind in sorted({name for name, _ in kinds}):
        print(f"| `{kind}` | {kinds[kind, False]} | {kinds[kind, True]} |")
    if chosen.marks:
        for call in calls:
            if call.kinds and call.attack is None:
                print(f"{call.suite} {call.task} {call.tool}: {', '.join(sorted(call.kinds))}")


if __name__ == "__main__":
    main()
