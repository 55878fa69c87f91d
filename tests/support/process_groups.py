"""Which tests stay together in one process of a run side by side: those that start the product's processes.

xdist's own groups are marked in the names of tests, which pytest 9.2 no longer allows to change.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

_PROJECT = Path(__file__).parent.parent.parent


# So many groups at once, of which most wait most of the time; one more process has the tests that are in none.
_GROUPS_AT_ONCE = 2


class ProcessGroupScheduling(LoadScopeScheduling):
    """Hands out tests one by one, and those of a group together; the groups first."""

    # The groups that no process has yet, those of most tests first; unknown until the first is handed out.
    _groups: deque[str] | None = None

    def _assign_work_unit(self, node: WorkerController) -> None:
        if self._groups is None:
            self._groups = deque(scope for scope in self.workqueue if _is_group(scope))
            for scope in self._groups:
                self.workqueue.move_to_end(scope)
        if self._groups and (node in self.nodes[:_GROUPS_AT_ONCE] or _is_group(next(iter(self.workqueue)))):
            self.workqueue.move_to_end(self._groups.popleft(), last=False)
        super()._assign_work_unit(node)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Forget a unit of work that is done: xdist counts pending tests over all units that a process ever got."""
        scope = self._split_scope(self.registered_collections[node][item_index])
        super().mark_test_complete(node, item_index, duration)
        if all(self.assigned_work[node][scope].values()):
            del self.assigned_work[node][scope]

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return group_of(file) or (f"{file}{_TOGETHER}" if _shares_what_it_sets_up(file) else nodeid)


# The end of the name of a unit: all tests of a file that starts nothing which would take the time of others.
_TOGETHER = "::"


def _is_group(scope: str) -> bool:
    return "::" not in scope


@cache
def _shares_what_it_sets_up(file: str) -> bool:
    """Return whether the tests of a file share a fixture, which each process would otherwise set up for itself."""
    return 'scope="module"' in (_PROJECT / file).read_text()


@cache
def group_of(file: str) -> str:
    """Return the group of a file's tests: by folder, those that start a product of their own by file; nothing for all
    others.

    Many side by side would take each other's time, and the tests of a group share the products that they start.
    """
    name, text = Path(file).stem, (_PROJECT / file).read_text()
    is_named_so = name == "test_server" or name.startswith("test_embedded")
    if not (is_named_so or "mark.stack" in text):
        return ""
    folder = file.split("/")[1]
    if folder == "stack":
        return file if "Product(" in text else "stack"
    return "clients" if folder == "clients" else "processes"
