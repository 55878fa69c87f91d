"""Background processes give way to the processes that answer requests."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys

import pytest

from gateway_project.embedded import child_process
from tests.stack.product import Product

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in child_process._NUMBERS,
    reason="another system's scheduler",
)

TOLD = """
import os, subprocess, sys
from gateway_project.embedded.child_process import lower_scheduling_priority
os.nice(3)
lower_scheduling_priority()
child = "import os; print(os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)); "
child += "print(open('/proc/self/sched').read())"
subprocess.run([sys.executable, "-c", child], check=True)
"""


def test_it_holds_for_what_is_started_later_and_takes_no_share_away() -> None:
    told = subprocess.run([sys.executable, "-c", TOLD], capture_output=True, text=True, check=True).stdout
    assert told.startswith(f"{os.SCHED_BATCH} 3\n")
    version = tuple(map(int, platform.release().split(".")[:2]))
    if version >= (6, 12):
        assert re.findall(r"se\.slice +: +(\d+)", told) == ["4000000"]


def test_where_it_is_not_known_how_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "abacus")
    child_process.lower_scheduling_priority()
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


@pytest.mark.stack
def test_of_the_products_processes_those_lower_scheduling_priority_that_nobody_waits_for(product: Product) -> None:
    policies = {
        role: {os.sched_getscheduler(pid) for pid in product.processes(*words)}
        for role, words in {
            "web": ("gunicorn",),
            "store": ("valkey-server",),
            "sandbox": ("apps.sandbox",),
            "settler": ("manage.py", "settler"),
            "worker": ("celery", "worker"),
            "beat": ("celery", "beat"),
            "database": ("postgres",),
            "flusher": ("aof_fsync.py",),
        }.items()
    }
    first, last = {os.SCHED_OTHER}, {os.SCHED_BATCH}
    assert policies == {
        "web": first,
        "store": first,
        "sandbox": first,
        "settler": last,
        "worker": last,
        "beat": last,
        "database": last,
        "flusher": last,
    }
