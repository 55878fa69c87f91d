"""Azure AI Content Safety: harm categories from a severity on, and attacks on the model (Prompt Shields).

`POST {url}/contentsafety/text:analyze` with `{text, outputType}` answers `{categoriesAnalysis: [{category,
severity}]}`; `POST {url}/contentsafety/text:shieldPrompt` with `{userPrompt, documents}` answers `{userPromptAnalysis:
{attackDetected}, documentsAnalysis: [{attackDetected}]}`; version 2024-09-01 (Azure/azure-rest-api-specs,
cognitiveservices/data-plane/ContentSafety). Both take 10,000 characters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from apps.guardrails.custom import BadConfig
from apps.guardrails.findings.scan_types import EXTERNAL_ROLES, INSTRUCTING_ROLES
from apps.guardrails.outside import (
    INPUT,
    GuardQuestion,
    GuardRequest,
    OutsideFinding,
    UnusableAnswer,
    json_request,
    objects_in,
    packs_of,
    read_number,
    read_object,
    read_url,
    whole_texts,
)

TYPE = "azure_content_safety"
JUDGES_EACH_TEXT = True
SECRETS = {"apiKey": True}
_VERSION: Final = "2024-09-01"
_MAX_CHARACTERS: Final = 10_000
_HIGHEST_SEVERITY: Final = 7


class _Step(NamedTuple):
    """One request: the operation, the indexes of the texts in it, and its body."""

    operation: str
    texts: tuple[int, ...]
    body: dict[str, Any]


def read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `{url, severity, promptShields}`. Raises BadConfig."""
    shields = config.get("promptShields", True)
    if not isinstance(shields, bool):
        raise BadConfig("promptShields", "Must be true or false")
    severity = read_number(config, "severity", 4, _HIGHEST_SEVERITY)
    return {"url": read_url(config), "severity": severity, "promptShields": shields}


def requests_of(question: GuardQuestion) -> Sequence[GuardRequest]:
    """Return a request for each pack of texts, and one more for each that might attack the model."""
    url, key = (
        f"{question.config['url']}/contentsafety/text:",
        {"Ocp-Apim-Subscription-Key": question.secrets["apiKey"]},
    )
    return [json_request(f"{url}{one.operation}?api-version={_VERSION}", one.body, **key) for one in _steps(question)]


def read_answers(question: GuardQuestion, answers: Sequence[bytes]) -> list[OutsideFinding]:
    """Return the texts that reach the severity in a category, and those that are attacks."""
    return whole_texts(_found(question, answers))


def _found(question: GuardQuestion, answers: Sequence[bytes]) -> Iterator[tuple[int, str]]:
    for step, body in zip(_steps(question), answers, strict=True):
        answer = read_object(body)
        if step.operation == "analyze":
            if not isinstance(answer.get("categoriesAnalysis"), list):
                raise UnusableAnswer("the answer has no `categoriesAnalysis`")
            for one in objects_in(answer["categoriesAnalysis"]):
                severity = one.get("severity") or 0
                if isinstance(severity, int | float) and severity >= question.config["severity"] and severity > 0:
                    yield from ((index, f"{one.get('category')} severity {severity}") for index in step.texts)
        else:
            analyses = [answer.get("userPromptAnalysis"), *objects_in(answer.get("documentsAnalysis"))]
            if not any(isinstance(one, dict) for one in analyses):
                raise UnusableAnswer("the answer has no analysis")
            if any(isinstance(one, dict) and one.get("attackDetected") is True for one in analyses):
                yield from ((index, "attack") for index in step.texts)


def _steps(question: GuardQuestion) -> list[_Step]:
    steps = []
    for text, indexes, _ in packs_of(question.texts, _MAX_CHARACTERS):
        steps.append(_Step("analyze", indexes, {"text": text, "outputType": "FourSeverityLevels"}))
        role = question.texts[indexes[0]].role
        if question.config["promptShields"] and question.direction == INPUT and role not in INSTRUCTING_ROLES:
            is_external = role in EXTERNAL_ROLES
            body = {"userPrompt": "" if is_external else text, "documents": [text] if is_external else []}
            steps.append(_Step("shieldPrompt", indexes, body))
    return steps
