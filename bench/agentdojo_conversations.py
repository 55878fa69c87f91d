"""Writes the conversations of AgentDojo's tasks for `script/bench agent_calls`, as lines of JSON.

Run it with a Python of its own that has `agentdojo` 0.1.35 (PyPI, MIT licence; github.com/ethz-spylab/agentdojo):

    python -m venv /tmp/agentdojo && /tmp/agentdojo/bin/pip install agentdojo==0.1.35
    /tmp/agentdojo/bin/python bench/agentdojo_conversations.py > FILE

No model is asked. The calls of a user task are the ones that the benchmark states as right, with the results that its
tools give. With an attack, the same calls run in documents that hold the attacker's goal (the attack `direct`), and the
calls follow that the benchmark states as the goal's. A row is {"suite", "task", "attack", "texts": [[origin, text,
tool]], "calls": [[tool, arguments, number of texts before it]]}; `attack` is the attacker's task, null without one,
and `calls` are the user's without an attack, the attacker's with one. Pairs whose goal no result shows are left out.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from typing import Any, Final

# The newest version of the benchmark's tasks.
VERSION: Final = "v1.2.2"
# Says who the user is, as the benchmark's own system message does.
_SYSTEM: Final = "You are an assistant with tools. Do what the user asks."


def rows() -> Iterator[dict[str, Any]]:
    """Yield all user tasks without an attack, then with each."""
    suites = _module("agentdojo.task_suite.load_suites").get_suites(VERSION)
    for name, suite in suites.items():
        attack = _attack_of(suite)
        goals = [(goal, _calls_of(goal, suite)) for goal in suite.injection_tasks.values()]
        for task in suite.user_tasks.values():
            texts, calls = _run(suite, task, {})
            yield {"suite": name, "task": task.ID, "attack": None, "texts": texts, "calls": calls}
            for goal, wanted in goals:
                yield from _attacked(name, suite, attack, task, goal, wanted)


def _attacked(
    name: str, suite: Any, attack: Any, task: Any, goal: Any, wanted: list[tuple[str, dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    try:
        injections = attack.attack(task, goal)
    except ValueError:
        # No document that the task reads has a place for it.
        return
    texts, _ = _run(suite, task, injections)
    results = [text for origin, text, _ in texts if origin == "tool_result"]
    if not any(_words(goal.GOAL) <= _words(text) for text in results):
        return
    calls = [[tool, arguments, len(texts)] for tool, arguments in wanted]
    yield {"suite": name, "task": task.ID, "attack": goal.ID, "texts": texts, "calls": calls}


def _calls_of(goal: Any, suite: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that the benchmark states as an attacker's; none for goals that need no call."""
    calls = goal.ground_truth(suite.load_and_inject_default_environment({}))
    return [(call.function, _arguments(call)) for call in calls]


def _run(suite: Any, task: Any, injections: dict[str, str]) -> tuple[list[list[str]], list[list[Any]]]:
    """Return the texts of a task that is done as the benchmark states it, and its calls."""
    environment = task.init_environment(suite.load_and_inject_default_environment(injections))
    runtime = _module("agentdojo.functions_runtime").FunctionsRuntime(suite.tools)
    pipeline = _module("agentdojo.agent_pipeline").GroundTruthPipeline(task)
    _, _, _, messages, _ = pipeline.query(task.PROMPT, runtime, environment)
    texts, calls = [["stated", _SYSTEM, ""], ["stated", task.PROMPT, ""]], []
    for message in messages:
        if message["role"] == "assistant":
            for call in message.get("tool_calls") or ():
                calls.append([call.function, _arguments(call), len(texts)])
                texts.append(["model", json.dumps(_arguments(call)), ""])
        elif message["role"] == "tool":
            texts.append(["tool_result", _text_of(message["content"]), message["tool_call"].function])
    return texts, calls


def _attack_of(suite: Any) -> Any:
    pipeline = _module("agentdojo.agent_pipeline").GroundTruthPipeline(None)
    pipeline.name = "local"
    return _module("agentdojo.attacks.attack_registry").load_attack("direct", suite, pipeline)


def _arguments(call: Any) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(dict(call.args), default=str))
    return read


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("content") or "") for block in content or ())


def _words(text: str) -> set[str]:
    """Return the longer words of a text: results are YAML, with quotes and lines of its own."""
    return set(re.findall(r"\w{4,}", text))


def _module(name: str) -> Any:
    return importlib.import_module(name)


if __name__ == "__main__":
    for row in rows():
        sys.stdout.write(json.dumps(row) + "\n")
