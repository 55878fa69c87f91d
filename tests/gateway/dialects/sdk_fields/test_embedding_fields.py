"""Every field of Google's SDK for embeddings is honoured or told."""

from __future__ import annotations

import json
from typing import Any

from google.genai import models, types
from google.genai._common import convert_to_dict

from apps.gateway.canonical.chat import Chat
from apps.gateway.dialects.values.embeddings.client import read_google_batch
from tests.gateway.dialects.sdk_fields.google_requests import CLIENT
from tests.gateway.dialects.sdk_fields.requests import pairs_of

SAMPLES = {"task_type": "RETRIEVAL_QUERY"}


def chat_of(config: dict[str, Any]) -> Chat | None:
    """Return the chat of what the SDK sends; None where it sends nothing."""
    given = types._EmbedContentParametersPrivate(model="m", contents=[{"parts": [{"text": "x"}]}], config=config)
    try:
        wire = models._EmbedContentParametersPrivate_to_mldev(CLIENT._api_client, given, None, given)
    except ValueError:
        return None
    sent: Any = convert_to_dict(wire)
    return read_google_batch(json.dumps({"requests": sent["requests"]}).encode(), "m")


def test_every_field_is_honoured_or_told() -> None:
    plain = chat_of({})
    assert plain is not None
    ways = {}
    for path, _, with_it in pairs_of(types.EmbedContentConfigDict):
        if "." in path:
            continue
        chat = chat_of({name: SAMPLES.get(name, value) for name, value in with_it.items()})
        if chat is not None and path != "http_options":
            ways[path] = (
                "told" if chat.dropped_fields else "silent" if chat.embedding == plain.embedding else "honoured"
            )
    assert ways == {"task_type": "honoured", "title": "honoured", "output_dimensionality": "honoured"}
