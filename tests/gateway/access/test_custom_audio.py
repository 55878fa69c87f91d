"""`custom:<providerName>/<model>` for sound: an organization's own server of speech and transcripts."""

from __future__ import annotations

import pytest

from apps.keys.models import ProviderKey
from apps.logs.models import RequestLog
from apps.sandbox.generated_media import spoken
from tests.gateway.access.test_custom_providers import own as own
from tests.support.audio_requests import SAID, sound_of, speak, transcribe
from tests.support.upstream import Caller, settle_all


@pytest.mark.usefixtures("own")
def test_speech(caller: Caller) -> None:
    assert sound_of(speak(caller, model="custom:our-own/speaker")) == b"".join(spoken(SAID))
    settle_all()
    row = RequestLog.objects.get()
    assert (row.used_provider, row.cost, row.unpriced) == ("custom:our-own", 0, True)


def test_transcripts(caller: Caller, own: ProviderKey) -> None:
    model = "custom:our-own/listener"
    assert transcribe(caller, model=model).json()["text"] == SAID
    assert transcribe(caller, model=model, response_format="vtt").content.startswith(b"WEBVTT\n\n00:00:00.000")
    settle_all()
    assert {row.provider_key_id for row in RequestLog.objects.all()} == {own.id}
