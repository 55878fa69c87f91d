"""Audio under guardrails: spoken texts, prompts, recordings as files, and each word of a transcript (section 4)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from apps.logs.models import RequestLog
from apps.sandbox.generated_media import recording, spoken
from tests.support.audio_requests import events_of, sound_of, speak, tagged, transcribe
from tests.support.guardrails_in_force import forbid, guard
from tests.support.upstream import Caller, settle_all

TERM = "zanzibar"
MASKED = "Meet me in [TERM_REDACTED] at noon."
SAID = f"Meet me in {TERM} at noon."


@pytest.mark.parametrize(("field", "other"), [("input", "instructions"), ("instructions", "input")])
def test_a_rule_blocks_a_text_and_names_its_field(caller: Caller, field: str, other: str) -> None:
    guard(caller)
    forbid(caller, TERM)
    tag = tagged("speaker-tokens")
    refused = speak(caller, **{"model": "speaker-tokens", "text": "a", "instructions": "b", _argument(field): SAID})
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (400, "guardrail_blocked", field)
    assert caller.sent(tag) == []
    settle_all()
    assert RequestLog.objects.get().cost == 0


def _argument(field: str) -> str:
    return "text" if field == "input" else field


def test_a_rule_masks_what_is_read_aloud_and_that_is_paid_for(caller: Caller) -> None:
    guard(caller)
    forbid(caller, TERM, action="redact")
    tag = tagged("speaker")
    assert sound_of(speak(caller, SAID)) == b"".join(spoken(MASKED))
    assert caller.sent(tag)[0]["body"]["input"] == MASKED
    settle_all()
    assert RequestLog.objects.get().cost == Decimal("17.3") * len(MASKED) / 1_000_000


def test_a_rule_blocks_a_prompt(caller: Caller) -> None:
    guard(caller)
    forbid(caller, TERM)
    refused = transcribe(caller, prompt=SAID)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "prompt")


def test_a_rule_about_files_sees_the_recording(caller: Caller) -> None:
    guard(caller, rules={"file_types": "block"}, allowed_file_types=["image/png"])
    tag = tagged("listener")
    refused = transcribe(caller)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "file")
    assert "files of type audio/wav are not allowed" in refused.json()["error"]["message"]
    assert caller.sent(tag) == []
    guard(caller, rules={"file_types": "block"}, allowed_file_types=["audio/wav"])
    assert transcribe(caller).status_code == 200


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("text", f"{MASKED}\n"),
        ("srt", f"1\n00:00:00,000 --> 00:00:02,000\n{MASKED}\n"),
        ("vtt", f"WEBVTT\n\n00:00:00.000 --> 00:00:02.000\n{MASKED}\n"),
    ],
)
def test_a_word_that_is_masked_is_in_no_form_of_the_transcript(caller: Caller, form: str, expected: str) -> None:
    guard(caller, scan_output=True)
    forbid(caller, TERM, action="redact")
    assert transcribe(caller, recording(SAID), response_format=form).content.decode() == expected


def test_masked_words_have_no_times(caller: Caller) -> None:
    guard(caller, scan_output=True)
    forbid(caller, TERM, action="redact")
    fields: dict[str, Any] = {"response_format": "verbose_json", "timestamp_granularities[]": ["word", "segment"]}
    body = transcribe(caller, recording(SAID), **fields).json()
    assert (body["text"], body["words"], body["segments"], body["duration"]) == (MASKED, [], [], 2.0)
    harmless = transcribe(caller, recording("Meet me."), **fields).json()
    assert [word["word"] for word in harmless["words"]] == ["Meet", "me."]
    events = events_of(
        transcribe(caller, recording(SAID), model="listener-tokens", stream="true", response_format="diarized_json")
    )
    assert TERM not in str(events)
    assert (events[-1]["type"], events[-1]["text"]) == ("transcript.text.done", MASKED)


@pytest.mark.parametrize("form", ["json", "text", "srt"])
def test_a_transcript_that_may_not_pass_is_an_error_and_paid_for(caller: Caller, form: str) -> None:
    guard(caller, scan_output=True)
    forbid(caller, TERM)
    refused = transcribe(caller, recording(SAID), response_format=form)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "guardrail_blocked")
    assert TERM not in refused.content.decode()
    settle_all()
    row = RequestLog.objects.get()
    assert (row.unified_finish_reason, row.cost) == ("content_filter", Decimal("0.000203333333"))


def test_a_stream_that_may_not_pass_ends_with_an_error(caller: Caller) -> None:
    guard(caller, scan_output=True)
    forbid(caller, TERM)
    events = events_of(transcribe(caller, recording(SAID), model="listener-tokens", stream="true"))
    assert events[-1]["type"] == "error"
    assert events[-1]["error"]["code"] == "guardrail_blocked"
    assert TERM not in str(events)
