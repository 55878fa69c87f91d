"""Which tests stay together in one process of a run side by side: those that start the product's processes.

xdist's own groups are marked in the names of tests, which pytest 9.2 no longer allows to change.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

_PROJECT = Path(__file__).parent.parent.parent


# So many groups at once, of which most wait most of the time; one more process has the tests that are in none.
_GROUPS_AT_ONCE = 2


class ProcessGroupScheduling(LoadScopeScheduling):
    """Hands out tests one by one, and those of a group together; the groups first."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node in self.nodes[_GROUPS_AT_ONCE:]:
            single = next((scope for scope in self.workqueue if "::" in scope), None)
            if single is not None:
                self.workqueue.move_to_end(single, last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid.partition("::")[0]) or nodeid


@cache
def group_of(file: str) -> str:
    """Return the group of a file's tests: by folder, those of the whole product by file; nothing for all others.

    Many side by side would take each other's time, and a product is started once for all tests of a file.
    """
    name = Path(file).stem
    is_named_so = name == "test_server" or name.startswith("test_embedded")
    if not (is_named_so or "mark.stack" in (_PROJECT / file).read_text()):
        return ""
    folder = file.split("/")[1]
    return {"clients": "clients", "stack": file}.get(folder, "processes")
