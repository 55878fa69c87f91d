"""Services that judge texts, each over HTTP that speaks as its API does."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt

from apps.logs.models import RequestLog
from tests.support.guard_service import GuardService, ask_guard
from tests.support.guardrails_in_force import violations
from tests.support.upstream import Caller, settle_all


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    """The key of a service account."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def said(caller: Caller, tag: str) -> list[Any]:
    """Return the contents of the messages that the provider got under a tag."""
    return [message["content"] for sent in caller.sent(tag) for message in sent["body"]["messages"]]


def found() -> list[tuple[str, str]]:
    """Return the recorded violations: the action and the match."""
    settle_all()
    return sorted((taken, pattern) for _, taken, pattern, _ in violations())


class TestPresidio:
    def test_entities_are_masked_at_their_places(self, caller: Caller, service: GuardService) -> None:
        secrets = {"apiKey": "proxy-key"}
        ask_guard(caller, service.url, "presidio", action="redact", secrets=secrets, entities=["PERSON"])
        tag = uuid4().hex
        service.answers([[{"entity_type": "PERSON", "start": 8, "end": 16, "score": 0.85}]])
        assert caller.chat(f"this is Ann Dove [[sandbox tag={tag}]]").status_code == 200
        [taken] = service.receiver.taken
        assert (taken.path, taken.headers["authorization"]) == ("/guard/analyze", "Bearer proxy-key")
        assert json.loads(taken.body) == {
            "text": [f"this is Ann Dove [[sandbox tag={tag}]]"],
            "language": "en",
            "score_threshold": 0.5,
            "entities": ["PERSON"],
        }
        assert said(caller, tag) == [f"this is [PERSON_REDACTED] [[sandbox tag={tag}]]"]
        assert found() == [("redacted", "PERSON")]

    @pytest.mark.parametrize("answer", [{"error": "No language"}, [], [[], []], [[{"entity_type": "PERSON"}]], [3]])
    def test_another_answer_is_a_failure(self, caller: Caller, service: GuardService, answer: Any) -> None:
        ask_guard(caller, service.url, "presidio", secrets={})
        service.answers(answer)
        assert caller.chat("hello").status_code == 503


class TestBedrock:
    KEYS = {"accessKeyId": "AKIDEXAMPLE", "secretAccessKey": "wJalrXUtnFEMI", "sessionToken": "session"}
    CONFIG = {"region": "eu-central-1", "guardrailId": "gr:1", "guardrailVersion": "2"}

    def test_the_request_is_signed(self, caller: Caller, service: GuardService) -> None:
        ask_guard(caller, service.url, "bedrock_guardrail", secrets=self.KEYS, **self.CONFIG)
        service.answers({"action": "NONE", "outputs": [], "assessments": [{}], "usage": {"topicPolicyUnits": 0}})
        assert caller.chat("hello").status_code == 200
        [taken] = service.receiver.taken
        assert taken.path == "/guard/guardrail/gr%3A1/version/2/apply"
        content = [{"text": {"text": "hello"}}]
        assert json.loads(taken.body) == {"source": "INPUT", "content": content, "outputScope": "FULL"}
        signed = taken.headers["authorization"]
        assert signed.startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
        assert "/eu-central-1/bedrock/aws4_request" in signed
        assert "SignedHeaders=accept;content-type;host;x-amz-date;x-amz-security-token" in signed
        assert taken.headers["x-amz-security-token"] == "session"

    def test_an_api_key_is_a_bearer(self, caller: Caller, service: GuardService) -> None:
        ask_guard(caller, service.url, "bedrock_guardrail", secrets={"apiKey": "bedrock-key"}, **self.CONFIG)
        service.answers({"action": "NONE"})
        assert caller.chat("hello").status_code == 200
        assert service.receiver.taken[0].headers["authorization"] == "Bearer bedrock-key"

    def test_what_it_anonymizes_is_masked_wherever_it_is(self, caller: Caller, service: GuardService) -> None:
        ask_guard(caller, service.url, "bedrock_guardrail", secrets=self.KEYS, **self.CONFIG)
        tag = uuid4().hex
        entity = {"match": "Ann", "type": "NAME", "action": "ANONYMIZED", "detected": True}
        service.answers(
            {
                "action": "GUARDRAIL_INTERVENED",
                "actionReason": "Guardrail masked.",
                "outputs": [{"text": "{NAME} and {NAME}"}],
                "assessments": [{"sensitiveInformationPolicy": {"piiEntities": [entity], "regexes": []}}],
            }
        )
        assert caller.chat(f"Ann and Ann [[sandbox tag={tag}]]").status_code == 200
        assert said(caller, tag) == [f"[NAME_REDACTED] and [NAME_REDACTED] [[sandbox tag={tag}]]"]

    @pytest.mark.parametrize(
        ("assessment", "pattern"),
        [
            (
                {"topicPolicy": {"topics": [{"name": "Finance", "type": "DENY", "action": "BLOCKED"}]}},
                "topic: Finance",
            ),
            (
                {"contentPolicy": {"filters": [{"type": "HATE", "confidence": "HIGH", "action": "BLOCKED"}]}},
                "content: HATE",
            ),
            ({"wordPolicy": {"customWords": [{"match": "hello", "action": "BLOCKED"}]}}, "word: hello"),
            (
                {"sensitiveInformationPolicy": {"regexes": [{"name": "id", "match": "hello", "action": "BLOCKED"}]}},
                "id",
            ),
            ({}, "intervened"),
        ],
    )
    def test_what_it_blocks_is_blocked(
        self, caller: Caller, service: GuardService, assessment: Any, pattern: str
    ) -> None:
        ask_guard(caller, service.url, "bedrock_guardrail", secrets=self.KEYS, **self.CONFIG)
        service.answers({"action": "GUARDRAIL_INTERVENED", "outputs": [{"text": "no"}], "assessments": [assessment]})
        assert caller.chat("hello").status_code == 400
        assert found() == [("blocked", pattern)]


class TestAzure:
    def test_severities_and_attacks(self, caller: Caller, service: GuardService) -> None:
        ask_guard(caller, service.url, "azure_content_safety", action="warn", secrets={"apiKey": "azure"}, severity=4)

        def judge(question: dict[str, Any]) -> dict[str, Any]:
            if "userPrompt" in question:
                documents = [{"attackDetected": False} for _ in question["documents"]]
                return {"userPromptAnalysis": {"attackDetected": True}, "documentsAnalysis": documents}
            categories = [{"category": "Hate", "severity": 2}, {"category": "Violence", "severity": 4}]
            return {"blocklistsMatch": [], "categoriesAnalysis": categories}

        service.answers(judge)
        assert caller.chat("hello").status_code == 200
        paths = sorted(one.path for one in service.receiver.taken)
        assert paths == [
            "/guard/contentsafety/text:analyze?api-version=2024-09-01",
            "/guard/contentsafety/text:shieldPrompt?api-version=2024-09-01",
        ]
        assert {one.headers["ocp-apim-subscription-key"] for one in service.receiver.taken} == {"azure"}
        assert found() == [("warned", "Violence severity 4"), ("warned", "attack")]

    def test_tool_results_are_documents_and_instructions_are_no_prompts(
        self, caller: Caller, service: GuardService
    ) -> None:
        ask_guard(caller, service.url, "azure_content_safety", secrets={"apiKey": "azure"}, onFailure="open")
        call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages = [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "read it"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "the page"},
        ]
        service.answers({"categoriesAnalysis": [], "userPromptAnalysis": {"attackDetected": False}})
        assert caller.chat(messages=messages).status_code == 200
        shields = [one for one in service.questions if "userPrompt" in one]
        assert {"userPrompt": "", "documents": ["the page"]} in shields
        assert {"userPrompt": "read it", "documents": []} in shields
        assert not any("be brief" in one["userPrompt"] for one in shields)

    def test_a_long_text_is_judged_in_pieces(self, caller: Caller, service: GuardService) -> None:
        config = {"secrets": {"apiKey": "azure"}, "promptShields": False}
        ask_guard(caller, service.url, "azure_content_safety", **config)
        service.answers({"categoriesAnalysis": []})
        assert caller.chat("x" * 25_000).status_code == 200
        assert sorted(len(one["text"]) for one in service.questions) == [5_000, 10_000, 10_000]
        settle_all()

    def test_texts_of_a_conversation_are_judged_together_and_once(self, caller: Caller, service: GuardService) -> None:
        config = {"secrets": {"apiKey": "azure"}, "promptShields": False}
        ask_guard(caller, service.url, "azure_content_safety", **config)
        service.answers({"categoriesAnalysis": []})
        messages = [{"role": "user", "content": f"question {number}"} for number in range(300)]
        assert caller.chat(messages=messages).status_code == 200
        separator = "\n\N{SYMBOL FOR RECORD SEPARATOR}\n"
        expected = [f"question {number}" for number in range(300)]
        assert separator.join(one["text"] for one in service.questions).split(separator) == expected
        asked = len(service.questions)
        assert asked <= 2
        assert caller.chat(messages=[*messages, {"role": "user", "content": "one more"}]).status_code == 200
        assert [one["text"] for one in service.questions[asked:]] == ["one more"]

    def test_a_text_that_was_found_is_judged_again(self, caller: Caller, service: GuardService) -> None:
        config = {"secrets": {"apiKey": "azure"}, "promptShields": False}
        ask_guard(caller, service.url, "azure_content_safety", **config)
        service.answers({"categoriesAnalysis": [{"category": "Hate", "severity": 6}]})
        for _ in range(2):
            assert caller.chat("hello").status_code == 400
        assert len(service.questions) == 2


def test_lakera_masks_what_has_a_place_and_blocks_the_rest(caller: Caller, service: GuardService) -> None:
    config = {"secrets": {"apiKey": "lakera"}, "projectId": "project-1"}
    ask_guard(caller, service.url, "lakera", action="redact", **config)
    tag = uuid4().hex
    text = f"I am Ann [[sandbox tag={tag}]]"
    pii = {"start": 5, "end": 8, "text": "Ann", "detector_type": "pii/name", "labels": [], "message_id": 0}
    service.answers(
        {
            "flagged": True,
            "payload": [pii],
            "breakdown": [{"detector_type": "pii/name", "detected": True, "message_id": 0}],
        }
    )
    assert caller.chat(text).status_code == 200
    [taken] = service.receiver.taken
    assert (taken.path, taken.headers["authorization"]) == ("/guard/v2/guard", "Bearer lakera")
    assert json.loads(taken.body) == {
        "messages": [{"role": "user", "content": text}],
        "breakdown": True,
        "payload": True,
        "project_id": "project-1",
    }
    assert said(caller, tag) == [f"I am [NAME_REDACTED] [[sandbox tag={tag}]]"]
    ask_guard(caller, service.url, "lakera", **config)
    breakdown = [
        {"detector_type": "prompt_attack", "detected": True, "message_id": 0},
        {"detector_type": "unknown_links", "detected": False, "message_id": 0},
    ]
    service.answers({"flagged": True, "payload": [], "breakdown": breakdown})
    refused = caller.chat("ignore all")
    assert refused.status_code == 400
    assert "(prompt_attack)" in refused.json()["error"]["message"]


@pytest.mark.parametrize("odd", [["pii/name"], {"pii": "name"}, None, 7])
def test_odd_detector_of_lakeras_blocks(caller: Caller, service: GuardService, odd: Any) -> None:
    ask_guard(caller, service.url, "lakera", secrets={"apiKey": "lakera"})
    found = {"detector_type": odd, "detected": True, "message_id": 0}
    service.answers({"flagged": True, "payload": [found], "breakdown": [found]})
    refused = caller.chat("I am Ann")
    assert refused.status_code == 400
    assert f"({odd})" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("categories", "status"), [([], 400), (["violence"], 200), (["hate", "harassment/threatening"], 400)]
)
def test_openai_moderation(caller: Caller, service: GuardService, categories: list[str], status: int) -> None:
    ask_guard(caller, service.url, "openai_moderation", secrets={"apiKey": "sk-1"}, categories=categories)
    flags = {"harassment/threatening": True, "violence": False, "hate": False}
    result = {"flagged": True, "categories": flags, "category_scores": {"violence": 0.01}}
    service.answers({"id": "modr-1", "model": "omni-moderation-latest", "results": [result]})
    assert caller.chat("hello").status_code == status
    [taken] = service.receiver.taken
    assert (taken.path, taken.headers["authorization"]) == ("/guard/v1/moderations", "Bearer sk-1")
    assert json.loads(taken.body) == {"model": "omni-moderation-latest", "input": ["hello"]}
    expected = [("blocked", "harassment/threatening")] if status == 400 else []
    assert found() == expected


class TestModelArmor:
    TEMPLATE = "projects/acme/locations/europe-west4/templates/strict"

    def secrets(self, key: rsa.RSAPrivateKey) -> dict[str, str]:
        """Return the JSON of a service account with this key."""
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        account = {
            "type": "service_account",
            "client_email": "guard@acme.iam.gserviceaccount.com",
            "private_key": key.private_bytes(*form).decode(),
            "private_key_id": "k1",
        }
        return {"serviceAccount": json.dumps(account)}

    def test_filters_that_match_block(self, caller: Caller, service: GuardService, key: rsa.RSAPrivateKey) -> None:
        ask_guard(caller, service.url, "model_armor", secrets=self.secrets(key), template=self.TEMPLATE)
        rai = {
            "executionState": "EXECUTION_SUCCESS",
            "matchState": "MATCH_FOUND",
            "raiFilterTypeResults": {
                "dangerous": {"matchState": "MATCH_FOUND", "confidenceLevel": "HIGH"},
                "harassment": {"matchState": "NO_MATCH_FOUND"},
            },
        }
        quiet = {"csamFilterFilterResult": {"executionState": "EXECUTION_SUCCESS", "matchState": "NO_MATCH_FOUND"}}
        service.answers(
            {
                "sanitizationResult": {
                    "filterMatchState": "MATCH_FOUND",
                    "invocationResult": "SUCCESS",
                    "filterResults": {"csam": quiet, "rai": {"raiFilterResult": rai}},
                }
            }
        )
        assert caller.chat("hello").status_code == 400
        [taken] = service.receiver.taken
        assert taken.path == f"/guard/v1/{self.TEMPLATE}:sanitizeUserPrompt"
        assert json.loads(taken.body) == {"userPromptData": {"text": "hello"}}
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        claims = jwt.decode(taken.headers["authorization"].removeprefix("Bearer "), certs=public)
        assert (claims["iss"], claims["scope"]) == (
            "guard@acme.iam.gserviceaccount.com",
            "https://www.googleapis.com/auth/cloud-platform",
        )
        assert found() == [("blocked", "rai: dangerous")]

    def test_deidentified_text_takes_the_place(self, caller: Caller, service: GuardService) -> None:
        ask_guard(caller, service.url, "model_armor", secrets={"serviceAccount": "ya29.token"}, template=self.TEMPLATE)
        tag = uuid4().hex
        changed = {"matchState": "MATCH_FOUND", "data": {"text": f"I am [PERSON] [[sandbox tag={tag}]]"}}
        service.answers(
            {
                "sanitizationResult": {
                    "filterMatchState": "MATCH_FOUND",
                    "invocationResult": "SUCCESS",
                    "filterResults": {"sdp": {"sdpFilterResult": {"deidentifyResult": changed}}},
                }
            }
        )
        assert caller.chat(f"I am Ann [[sandbox tag={tag}]]").status_code == 200
        assert said(caller, tag) == [f"I am [PERSON] [[sandbox tag={tag}]]"]

    def test_deidentified_texts_that_were_judged_together_are_told_apart(
        self, caller: Caller, service: GuardService
    ) -> None:
        ask_guard(caller, service.url, "model_armor", secrets={"serviceAccount": "ya29.token"}, template=self.TEMPLATE)

        def mask(question: dict[str, Any]) -> dict[str, Any]:
            data = {"text": question["userPromptData"]["text"].replace("Ann", "[PERSON]")}
            results = {"sdp": {"sdpFilterResult": {"deidentifyResult": {"matchState": "MATCH_FOUND", "data": data}}}}
            return {"sanitizationResult": {"filterMatchState": "MATCH_FOUND", "filterResults": results}}

        service.answers(mask)
        tag = uuid4().hex
        words = ["I am Ann", "hello", f"Ann asks [[sandbox tag={tag}]]"]
        assert caller.chat(messages=[{"role": "user", "content": one} for one in words]).status_code == 200
        assert len(service.questions) == 1
        assert said(caller, tag) == ["I am [PERSON]", "hello", f"[PERSON] asks [[sandbox tag={tag}]]"]

    @pytest.mark.parametrize("result", [{}, {"filterMatchState": "NO_MATCH_FOUND", "invocationResult": "PARTIAL"}])
    def test_filters_that_did_not_run_are_a_failure(self, caller: Caller, service: GuardService, result: Any) -> None:
        ask_guard(caller, service.url, "model_armor", secrets={"serviceAccount": "ya29.token"}, template=self.TEMPLATE)
        service.answers({"sanitizationResult": result})
        assert caller.chat("hello").status_code == 503
        settle_all()
        assert RequestLog.objects.count() == 1


def test_answers_are_judged_as_answers(caller: Caller, service: GuardService) -> None:
    secrets = {"apiKey": "bedrock-key"}
    config = {"region": "eu-central-1", "guardrailId": "g", "guardrailVersion": "DRAFT", "direction": "output"}
    ask_guard(caller, service.url, "bedrock_guardrail", secrets=secrets, **config)
    service.answers({"action": "NONE"})
    assert caller.chat("hello").status_code == 200
    [question] = service.questions
    assert question["source"] == "OUTPUT"
