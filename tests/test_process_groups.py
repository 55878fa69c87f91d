"""Which tests of a run stay together in one process, and which process has the others."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from tests.support.process_groups import ProcessGroupScheduling, group_of


class Node:
    """A process of the run, and the tests that it was given."""

    def __init__(self) -> None:
        self.given: list[int] = []

    def send_runtest_some(self, tests: list[int]) -> None:
        self.given += tests


@pytest.mark.parametrize(
    ("file", "group"),
    [
        ("tests/stack/test_chaos.py", "tests/stack/test_chaos.py"),
        ("tests/clients/test_codex.py", "clients"),
        ("tests/gateway_project/processes/test_server.py", "processes"),
        ("tests/attack/test_quick.py", "processes"),
        ("tests/mcp/test_server_endpoints.py", ""),
        ("tests/kernel/postgres/test_advisory_lock.py", ""),
    ],
)
def test_tests_that_start_processes_stay_together(file: str, group: str) -> None:
    assert group_of(file) == group


def test_two_processes_have_the_groups_and_the_third_all_others() -> None:
    tests = ["a::1", "a::2", "b::1", "c::1", "d::1"]
    nodes: list[Any] = [Node(), Node(), Node()]
    scheduling: Any = ProcessGroupScheduling.__new__(ProcessGroupScheduling)
    scheduling.assigned_work = OrderedDict((node, {}) for node in nodes)
    scheduling.registered_collections = dict.fromkeys(nodes, tests)
    scheduling.workqueue = OrderedDict(
        {"group a": {"a::1": False, "a::2": False}, "group b": {"b::1": False}, "c::1": {"c::1": False}}
    )
    scheduling.workqueue["d::1"] = {"d::1": False}
    for node in reversed(nodes):
        scheduling._assign_work_unit(node)
    assert [node.given for node in nodes] == [[2], [0, 1], [3]]
    scheduling._assign_work_unit(nodes[0])
    assert nodes[0].given == [2, 4]
