"""`script/bench guarded_requests FOLDER`: what all system rules add to ordinary requests, over HTTP.

Two gateways, one with all system rules on and one without guardrails, are sent the same requests in turn, one at a
time. A request has the beginning of a file of a public repository (`clean_corpus` says how they lie in the folder), and
none is sent twice: as a user's text, or as an agent's request that has read it with a tool. It prints medians of the
time until the whole answer, and of the processor time of the web worker.
"""

from __future__ import annotations

import argparse
import http.client
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench.guardrails import ORDINARY, ordinary_files
from bench.machine import MEASURED, OTHERS, pin, threads_cpu_seconds
from bench.subjects import Subject, agent_tools, gateway, upstream

# Requests before those that count: patterns are compiled then that nearly every text needs.
_WARM = 20
# Characters of an agent's instructions, which all of its requests share, and its tools.
_INSTRUCTIONS, _TOOLS = 2_000, 2
Fields = dict[str, Any]


def as_user_text(text: str) -> Fields:
    """Return a request whose user wrote the text."""
    return {"messages": [{"role": "user", "content": text}]}


def as_tool_result(text: str) -> Fields:
    """Return the request of an agent that has read the text with a tool, of as many characters."""
    tools = agent_tools()[:_TOOLS]
    left = len(text) - _INSTRUCTIONS - len(json.dumps(tools))
    call = {"name": tools[0]["function"]["name"], "arguments": json.dumps({"path": "docs/guide.md"})}
    messages = [
        {"role": "system", "content": ("You are an agent that works on code. " * 60)[:_INSTRUCTIONS]},
        {"role": "user", "content": "Read the guide, and say what is missing in it."},
        {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "call_1", "content": text[:left]},
    ]
    return {"messages": messages, "tools": tools}


KINDS: dict[str, Callable[[str], Fields]] = {"user's text": as_user_text, "agent's request": as_tool_result}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="script/bench guarded_requests", description=__doc__)
    parser.add_argument("folder", type=Path, help="copies of public repositories")
    parser.add_argument("--each", type=int, default=25, help="files of each repository")
    chosen = parser.parse_args()
    texts = ordinary_files(chosen.folder, chosen.each)
    with (
        tempfile.TemporaryDirectory() as home,
        upstream() as fixed,
        gateway(fixed.port, Path(home) / "guarded", guarded=True) as guarded,
        gateway(fixed.port, Path(home) / "plain") as plain,
    ):
        for subject in (guarded, plain):
            assert subject.product is not None
            pin([subject.product.pid], OTHERS)
            pin(subject.workers, MEASURED)
        pin(fixed.workers, OTHERS)
        print(f"{len(texts)} files, {ORDINARY:,} characters each; milliseconds without guardrails, with them, added")
        for kind, fields_of in KINDS.items():
            rows = [[_ask(subject, fields_of(text)) for subject in (plain, guarded)] for text in texts]
            for place, what in enumerate(("until the answer", "of the processor")):
                pairs = [(without[place], with_them[place]) for without, with_them in rows[_WARM:]]
                without, with_them = (median(side) for side in zip(*pairs, strict=True))
                added = median(more - less for less, more in pairs)
                print(f"{kind}, {what}: {without:.2f}, {with_them:.2f}, {added:.2f}")


def _ask(subject: Subject, fields: Fields) -> tuple[float, float]:
    """Return the milliseconds until a request was answered, and those of its worker's processor time."""
    body = json.dumps({"model": subject.model, **fields})
    headers = {**subject.headers, "Content-Type": "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", subject.port, timeout=30)
    connection.connect()
    used, start = threads_cpu_seconds(subject.workers), time.perf_counter()
    connection.request("POST", f"{subject.root}/chat/completions", body, headers)
    answer = connection.getresponse()
    answer.read()
    took = time.perf_counter() - start
    assert answer.status == 200, answer.status
    connection.close()
    return took * 1000, (threads_cpu_seconds(subject.workers) - used) * 1000


if __name__ == "__main__":
    main()
