"""Guardrails on transcripts: the times of words tell these words again, and are gone where something was masked."""

from __future__ import annotations

import pytest

from apps.gateway.canonical.events import Finished, TextDelta, TranscriptTimed
from tests.gateway.guard.test_response_guard import WORD, passed


@pytest.mark.parametrize("text", [f"to {WORD} now", "to somewhere now"], ids=["in the text", "only with its times"])
def test_times_of_words_that_were_masked_do_not_get_through(text: str) -> None:
    timed = TranscriptTimed(
        segments=[{"start": 0, "end": 1, "text": f"to {WORD[:4]}"}, {"start": 1, "end": 2, "text": "now"}],
        words=[{"word": "to", "start": 0, "end": 1}, {"word": WORD, "start": 1, "end": 2}],
        language="en",
        duration=2.0,
    )
    kept = passed([TextDelta(text=text), timed, Finished(reason="stop")])
    assert [event for event in kept if isinstance(event, TranscriptTimed)] == [
        TranscriptTimed(language="en", duration=2.0)
    ]
    assert WORD not in str(kept)


def test_times_of_harmless_words_get_through_behind_the_text() -> None:
    timed = TranscriptTimed(segments=[{"start": 0, "end": 1, "text": "to sea"}], duration=1.0)
    assert passed([timed, TextDelta(text="to sea"), Finished(reason="stop")])[-2:] == [timed, Finished(reason="stop")]
