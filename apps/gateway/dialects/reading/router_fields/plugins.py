"""OpenRouter's `plugins`: processing of a request or an answer beside the model."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import Record, boolean, list_of, one_of, optional, record, required
from apps.gateway.dialects.reading.router_fields.reading import NO_MEANING, NO_PROMISE, RouterReading, refuse

MAX_PLUGINS = 100
_HEALING, _WEB, _FILES, _MODERATION = "response-healing", "web", "file-parser", "moderation"
_LEFT_OUT: Final = {
    "auto-router": "ask for the model `auto` instead",
    "auto-beta-router": "ask for the model `auto` instead",
    "context-compression": "prompts are sent whole",
    "web-fetch": "pages are not fetched here",
    "fusion": NO_MEANING,
    "pareto-router": NO_MEANING,
    "switchyard-router": NO_MEANING,
}


def take_plugins(reading: RouterReading, value: Any) -> None:
    for at, plugin in enumerate(list_of(record, MAX_PLUGINS)(value)):
        fields.within(f"[{at}]", partial(_take_plugin, reading, f"plugins[{at}]"), plugin)


def _take_plugin(reading: RouterReading, place: str, wire: Record) -> None:
    name = required(wire, "id", one_of(_HEALING, _WEB, _FILES, _MODERATION, *_LEFT_OUT))
    if optional(wire, "enabled", boolean) is False:
        return
    said = {key for key, value in wire.items() if value is not None} - {"id", "enabled"}
    if name == _MODERATION:
        refuse(place, "A moderation of the request " + NO_PROMISE + ", or use guardrails")
    if name in _LEFT_OUT:
        reading.drop(place, _LEFT_OUT[name])
    elif name == _HEALING:
        reading.known["plugins"] = [_HEALING]
    elif name == _WEB:
        reading.known["web_search"] = True
        if wire.get("engine") == "native":
            said.discard("engine")
        for key in sorted(said):
            reading.drop(f"{place}.{key[: fields.MAX_NAME_TOLD]}", "the model's provider searches in its own way")
    elif said and (wire.get("pdf") or {}) != {"engine": "native"}:
        reading.drop(place, "files are sent to the model as they are: it has to read them itself")
