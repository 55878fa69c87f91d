"""Requests for speech and for transcripts, through Django's test client, and a place where the sandbox notes them."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

from django.core.files.uploadedfile import SimpleUploadedFile

from apps.catalog.models import ModelProvider
from apps.kernel.valkey import generation
from apps.sandbox.generated_media import recording
from tests.support.upstream import Caller

SAID = "The fox is here. It waits."


def speak(caller: Caller, text: Any = SAID, **fields: Any) -> Any:
    """Ask for speech, of `speaker` unless `model` says otherwise; a field that is None is left out."""
    headers = {"Authorization": f"Bearer {caller.token}", **fields.pop("headers", {})}
    wire = {"model": "speaker", "input": text, "voice": "alloy", **fields}
    body = json.dumps({name: one for name, one in wire.items() if one is not None})
    return caller.client.post("/v1/audio/speech", body, content_type="application/json", headers=headers)


def transcribe(
    caller: Caller, data: Any = None, *, to: str = "transcriptions", name: str = "a.wav", **fields: Any
) -> Any:
    """Ask for a transcript of a file, of `SAID` in two seconds unless it is given, of `listener` unless `model` says
    otherwise; a field that is None is left out."""
    headers = {"Authorization": f"Bearer {caller.token}", **fields.pop("headers", {})}
    file = SimpleUploadedFile(name, recording(SAID) if data is None else data, "audio/wav")
    form = {"model": "listener", "file": file, **fields}
    body = {name: one for name, one in form.items() if one is not None}
    return caller.client.post(f"/v1/audio/{to}", body, headers=headers)


def tagged(mapping: str, provider: str = "sandbox", stands: str | None = None, **directives: str) -> str:
    """Have the sandbox note under a new tag what it is asked for a model; return the tag."""
    tag = uuid4().hex
    script = "".join(f":{name}={value}" if value else f":{name}" for name, value in {"tag": tag, **directives}.items())
    rows = ModelProvider.objects.filter(model_id=mapping, provider_id=provider)
    rows.update(model_name=f"{stands or mapping}{script}")
    generation.bump(generation.CATALOG)
    return tag


def sound_of(response: Any) -> bytes:
    """Return the body of a stream."""
    return b"".join(response.streaming_content)


def events_of(response: Any) -> list[Any]:
    """Return the data of a stream's events."""
    lines = sound_of(response).decode().split("\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


def field_of(sent: dict[str, Any], name: str) -> list[str]:
    """Return the values of a form's field, of a request that the sandbox noted."""
    pieces = str(sent["body"]).split(f'name="{name}"\r\n\r\n')[1:]
    return [piece.partition("\r\n--")[0] for piece in pieces]
