"""OpenAI Chat Completions on Vertex AI, provider side: partners' models, named `publisher/model`, at another
address.

The models of a `publisher` (a fact) are served one by one instead: the name with the edition behind its `@` is in the
path, and the body has it without the edition.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Final

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects import fact
from apps.gateway.dialects.chat.openai import PROVIDER as OPENAI
from apps.gateway.dialects.chat.openai.wire import Facts as OpenAIFacts
from apps.gateway.dialects.chat.vertex import model_path, url_of_path


class Facts(OpenAIFacts, frozen=True, kw_only=True):
    """The facts that a data file may state: OpenAI's, and the publisher."""

    publisher: Annotated[
        str,
        fact(
            "the publisher in whose name a model is served one by one "
            "(`…/publishers/<publisher>/models/<model>:rawPredict`)",
            default="none",
            pattern=r"^[a-z0-9-]*$",
            max_length=40,
        ),
    ] = ""


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL, which ends with project and location."""
    if publisher := target.facts.get("publisher"):
        method = "streamRawPredict" if chat.stream else "rawPredict"
        return model_path(publisher, target.model_name.removeprefix(f"{publisher}/"), method)
    return f"/endpoints/openapi{OPENAI.path(chat, target)}"


def url(base_url: str, chat: Chat, target: Target) -> str:
    """Return where the request goes."""
    return url_of_path(base_url, path(chat, target))


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. Raises InvalidRequest for what cannot be said."""
    if publisher := target.facts.get("publisher"):
        name = target.model_name.removeprefix(f"{publisher}/").partition("@")[0]
        # Dropped fields and rewrites are noted in the same lists as before.
        target = replace(target, model_name=name)
    return OPENAI.write_request(chat, target)


PROVIDER: Final = dataclasses.replace(
    OPENAI, name="vertex_openai", facts=Facts, path=path, url=url, write_request=write_request
)
