"""Which tests of a run stay together in one process, and which process has the others."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from tests.support.process_groups import ProcessGroupScheduling, group_of


@pytest.mark.parametrize(
    ("file", "group"),
    [
        ("tests/stack/test_chaos.py", "tests/stack/test_chaos.py"),
        ("tests/stack/test_streams.py", "stack"),
        ("tests/clients/test_codex.py", "clients"),
        ("tests/gateway_project/processes/test_server.py", "processes"),
        ("tests/attack/test_quick.py", "processes"),
        ("tests/mcp/test_server_endpoints.py", ""),
        ("tests/kernel/postgres/test_advisory_lock.py", ""),
    ],
)
def test_tests_that_start_processes_stay_together(file: str, group: str) -> None:
    assert group_of(file) == group


class Node:
    """A process of the run, and the tests that it was given."""

    shutting_down = False

    def __init__(self) -> None:
        self.given: list[int] = []

    def send_runtest_some(self, tests: list[int]) -> None:
        self.given += tests

    def shutdown(self) -> None:
        self.shutting_down = True


FIRST, SECOND = "tests/stack/test_chaos.py", "tests/clients/test_codex.py"
TOGETHER = "tests/kernel/valkey/test_shards.py"
SINGLE = "tests/kernel/postgres/test_advisory_lock.py"


@pytest.fixture
def scheduling() -> Any:
    """A schedule of two groups, a file whose tests share a fixture, and two other tests, for three processes."""
    made: Any = ProcessGroupScheduling.__new__(ProcessGroupScheduling)
    made.workqueue, made.log = OrderedDict(), lambda *_: None
    made.assigned_work = {Node(): {} for _ in range(3)}
    tests = [f"{SINGLE}::a", f"{SINGLE}::b", f"{FIRST}::a", f"{SECOND}::a", f"{SECOND}::b"]
    tests += [f"{TOGETHER}::{name}" for name in "abc"]
    made.registered_collections = dict.fromkeys(made.nodes, tests)
    for test in tests:
        made.workqueue.setdefault(made._split_scope(test), {})[test] = False
    return made


def test_two_processes_have_the_groups_and_the_third_all_others(scheduling: Any) -> None:
    nodes = scheduling.nodes
    for node in reversed(nodes):
        scheduling._assign_work_unit(node)
    assert [node.given for node in nodes] == [[3, 4], [2], [0]]
    for _ in range(2):
        scheduling._assign_work_unit(nodes[0])
    assert nodes[0].given == [3, 4, 1, 5, 6, 7]


def test_what_is_left_of_the_groups_is_given_to_any_process(scheduling: Any) -> None:
    node = scheduling.nodes[2]
    while scheduling.workqueue:
        scheduling._assign_work_unit(node)
    assert node.given == [0, 1, 5, 6, 7, 2, 3, 4]


def test_a_unit_that_is_done_is_forgotten(scheduling: Any) -> None:
    node = scheduling.nodes[0]
    scheduling._assign_work_unit(node)
    assert node.given == [2]
    scheduling.mark_test_complete(node, 2)
    assert FIRST not in scheduling.assigned_work[node]
    assert (scheduling._pending_of(scheduling.assigned_work[node]), node.given) == (2, [2, 3, 4])
