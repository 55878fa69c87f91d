"""Recorded requests to other providers, written for Bedrock: every request fits AWS's own model of Converse, or
is refused for a reason that is named here. The recordings are not part of the project; without them this is skipped."""

from __future__ import annotations

import gzip
import json
import re
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.chat import anthropic, bedrock, openai
from apps.kernel.errors import InvalidRequest
from apps.sandbox.formats import bedrock_converse
from gateway_project.configuration.data_directory import PROJECT

RECORDINGS = PROJECT.parent / "shared" / "recordings"
SIDES: dict[str, Any] = {"/chat/completions": openai, "/v1/messages": anthropic}
OPERATION = botocore.session.get_session().get_service_model("bedrock-runtime").operation_model("Converse")
# A model that takes all that some take, and one that takes the least.
TARGETS: dict[str, dict[str, Any]] = {
    "most": {
        "reasoning_form": "thinking",
        "reasoning_budget": {"min": 1024},
        "structured_outputs": "native",
        "takes": ["cache_points", "cache_tools", "cache_1h", "tool_choice", "top_k", "strict"],
        "tool_results": "without_files",
    },
    "least": {"structured_outputs": "tool", "tool_results": "alone", "result_status": False},
}
# Why a request cannot be written at all.
REASONS = (
    "is a tool that this model's provider does not have",
    "A message holds content that this model's provider has no form for",
    "this model's provider takes the bytes of an image or file, not its address",
    "this model's provider takes the bytes of a file, not its address or id",
    "This model's provider has no web search",
    "only models that are called in Anthropic's format can use them",
)

pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason="there are no recordings in ../shared/recordings")


def chats() -> Iterator[tuple[str, str, Chat]]:
    """Yield who was asked, the name of the exchange, and the chat, of each request that our own clients could send."""
    for path in sorted(RECORDINGS.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                exchange = json.loads(line)
                address = exchange["url"].partition("?")[0]
                side = next((side for ending, side in SIDES.items() if address.endswith(ending)), None)
                if side is None or not exchange["request"]:
                    continue
                try:
                    chat = side.read_request(json.dumps(exchange["request"]).encode())
                except InvalidRequest:
                    continue
                yield path.name.removesuffix(".jsonl.gz"), exchange["name"], chat


@pytest.mark.parametrize("takes", TARGETS)
def test_recorded_requests_fit_awss_own_model_of_converse(takes: str, capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    for host, name, chat in chats():
        target = Target(model_name="us.maker.model-v1:0", facts=TARGETS[takes], max_output=64_000)
        try:
            written = bedrock.write_request(chat, target)
        except InvalidRequest as refusal:
            refusals[next(reason for reason in REASONS if reason in refusal.message)] += 1
            continue
        assert_fits(json.loads(written), target, name)
        if takes == "least":
            bedrock_converse.read_request("/model/echo/converse", written)
        counts[host] += 1
    assert counts.total() > refusals.total() > 0
    with capsys.disabled():
        sys.stdout.write(f"\nTo a model that takes the {takes}: {counts.total()} written, by host {dict(counts)}")
        for reason, count in refusals.most_common():
            sys.stdout.write(f"\n  {count} refused: {reason}")


def assert_fits(wire: dict[str, Any], target: Target, name: str) -> None:
    """The request is what AWS's own SDK would send, down to patterns and words."""
    shape = OPERATION.input_shape
    problems: list[str] = []
    sent = as_sdk({**wire, "modelId": target.model_name}, shape, "", problems)
    report = ParamValidator().validate(sent, shape)
    assert not report.has_errors(), (name, report.generate_report())
    assert problems == [], name


def as_sdk(value: Any, shape: Any, at: str, problems: list[str]) -> Any:
    """Return a value as the SDK has it, bytes decoded; note what the SDK leaves to the server to check."""
    match shape.type_name:
        case "structure" if not getattr(shape, "is_document_type", False):
            if getattr(shape, "is_tagged_union", False) and len(value) != 1:
                problems.append(f"{at}: {sorted(value)} is more than one")
            problems += [f"{at}: there is no {field}" for field in value.keys() - shape.members.keys()]
            return {
                field: as_sdk(inner, shape.members[field], f"{at}.{field}", problems)
                for field, inner in value.items()
                if field in shape.members
            }
        case "list":
            return [as_sdk(inner, shape.member, f"{at}[]", problems) for inner in value]
        case "blob":
            return b64decode(value, validate=True)
        case "string":
            limits = shape.metadata
            if "pattern" in limits and not re.fullmatch(limits["pattern"], value):
                problems.append(f"{at}: {value[:80]!r} does not match")
            if shape.enum and value not in shape.enum:
                problems.append(f"{at}: {value!r} is not one of {shape.enum}")
            if not limits.get("min", 0) <= len(value) <= limits.get("max", len(value)):
                problems.append(f"{at}: {len(value)} characters")
    return value
