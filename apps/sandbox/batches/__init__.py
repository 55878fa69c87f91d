"""Batches of the sandbox: batch APIs of OpenAI (and Groq), Anthropic, Google and Mistral; kept in memory.

A job is answered when it is made, line by line as requests of its own, and has ended a moment later. Its messages
script the outcome of a line, or of the whole job (`batch=…`, `scenario.py`).
"""

from __future__ import annotations

from apps.sandbox.batches import anthropic, google, mistral, openai
from apps.sandbox.batches.jobs import Answerer, BatchStore, LineAnswer
from apps.sandbox.http_framing import SandboxRequest

__all__ = ["LineAnswer", "SandboxBatches"]

_APIS = (anthropic, google, mistral, openai)


class SandboxBatches:
    """The files and jobs of one sandbox. `answer` answers a line by its path and body."""

    def __init__(self, answer: Answerer) -> None:
        self._store = BatchStore(answer)

    def reply_to(self, request: SandboxRequest) -> bytes | None:
        """Return the body of an answer, None for a request that is not about batches. Raises SandboxRefusal."""
        for api in _APIS:
            if found := api.PATH.fullmatch(request.path):
                answer: bytes | None = api.reply_to(self._store, request, *found.groups())
                return answer
        return None
