"""Rules are loaded and compiled on a native thread: who needs them waits, and other clients do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# In a process as a worker is; prints how many automata were made on the event loop's own thread, and how many at all.
PROGRAM = """
from gevent import monkey
monkey.patch_all()
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "gateway_project.settings"
import django
django.setup()
import re2
from apps.guardrails import models
from apps.guardrails.configuration import compiled_cache
from apps.guardrails.scanning import engine
ident = monkey.get_original("_thread", "get_ident")
ours, made = ident(), []
compile_filter, compile_config = re2.Filter.Compile, engine.compile_guardrails
def note(work):
    def noted(*given):
        made.append(ident() == ours)
        return work(*given)
    return noted
re2.Filter.Compile = note(compile_filter)
{first}
config = engine.EngineConfig(system_rules={{"secrets": engine.SystemRuleState()}})
engine.compile_guardrails = note(compile_config)
assert compiled_cache.compiled_guardrails("organization", config).in_force
assert len(made) >= 2, made
print(sum(made), "of", len(made))
"""


@pytest.mark.parametrize("first", ["", "assert models.default_system_rules()"], ids=["for a request", "for a row"])
def test_no_rule_is_loaded_or_compiled_on_the_event_loops_thread(first: str) -> None:
    command = [sys.executable, "-c", PROGRAM.format(first=first)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("0 of ")
