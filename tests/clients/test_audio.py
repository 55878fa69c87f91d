"""OpenAI's own client, plain, streaming bytes and streaming transcripts, over the running product."""

from __future__ import annotations

import time
from io import BytesIO

import httpx2
import openai
import pytest

from apps.sandbox.generated_media import recording, spoken
from tests.clients.gateway import Gateway

pytestmark = pytest.mark.stack
SAID = "The fox is here. It waits."
SOUND = b"".join(spoken(SAID))


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> openai.OpenAI:
    """OpenAI's client at the gateway."""
    return openai.OpenAI(base_url=gateway.openai_url, api_key=gateway.key, max_retries=0)


def file() -> BytesIO:
    """Return a recording as a client opens it."""
    opened = BytesIO(recording(SAID))
    opened.name = "fox.wav"
    return opened


def test_speech_whole_and_as_it_comes(client: openai.OpenAI) -> None:
    whole = client.audio.speech.create(model="speaker", voice="alloy", input=SAID, response_format="wav", speed=1.25)
    assert (whole.content, whole.response.headers["content-type"]) == (SOUND, "audio/wav")
    asked = client.audio.speech.with_streaming_response
    with asked.create(model="speaker-tokens", voice={"id": "voice_1"}, input=SAID, instructions="Slowly") as answer:
        assert b"".join(answer.iter_bytes()) == SOUND
    with pytest.raises(openai.BadRequestError) as refused:
        client.audio.speech.create(model="speaker", voice="alloy", input="")
    assert refused.value.param == "input"


def test_sound_is_heard_while_it_is_made(client: openai.OpenAI) -> None:
    asked = client.audio.speech.with_streaming_response
    with asked.create(model="speaker", voice="alloy", input=f"{SAID} [[sandbox gap=100]]") as answer:
        arrivals = [(time.monotonic(), piece) for piece in answer.iter_bytes()]
    assert b"".join(piece for _, piece in arrivals) == SOUND
    assert arrivals[-1][0] - arrivals[0][0] > 0.25


def test_half_of_a_sound_is_never_taken_for_the_whole(client: openai.OpenAI) -> None:
    asked = client.audio.speech.with_streaming_response
    with (
        pytest.raises(httpx2.RemoteProtocolError),
        asked.create(model="speaker", voice="alloy", input=f"{SAID} [[sandbox cut=2]]") as answer,
    ):
        answer.read()


def test_transcripts_of_every_kind(client: openai.OpenAI) -> None:
    plain = client.audio.transcriptions.create(model="listener", file=file())
    assert (plain.text, plain.usage.seconds) == (SAID, 2.0)  # type: ignore[union-attr]  # of seconds
    verbose = client.audio.transcriptions.create(
        model="listener", file=file(), response_format="verbose_json", timestamp_granularities=["word", "segment"]
    )
    assert (verbose.language, verbose.duration) == ("english", 2.0)
    assert [word.word for word in verbose.words or []] == SAID.split()
    assert [segment.text for segment in verbose.segments or []] == [" The fox is here.", " It waits."]
    srt = client.audio.transcriptions.create(model="listener", file=file(), response_format="srt")
    assert srt.startswith("1\n00:00:00,000 --> 00:00:01,333\nThe fox is here.\n")
    diarized = client.audio.transcriptions.create(
        model="listener-tokens",
        file=file(),
        response_format="diarized_json",
        chunking_strategy={"type": "server_vad", "threshold": 0.5},
    )
    assert [segment.speaker for segment in diarized.segments] == ["A", "B"]
    # Its makers would rather have chats translate.
    with pytest.warns(DeprecationWarning, match="deprecated"):
        english = client.audio.translations.create(model="listener", file=file())
    assert english.text == SAID


def test_a_streamed_transcript(client: openai.OpenAI) -> None:
    events = list(client.audio.transcriptions.create(model="listener-tokens", file=file(), stream=True))
    assert "".join(event.delta for event in events if event.type == "transcript.text.delta") == SAID
    done = events[-1]
    assert done.type == "transcript.text.done"
    assert done.usage is not None
    assert (done.text, done.usage.input_tokens, done.usage.output_tokens) == (SAID, 20, 7)
