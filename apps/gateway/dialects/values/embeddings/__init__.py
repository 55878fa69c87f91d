"""Embedding dialects: wire formats of embeddings, and how a format is found by the facts of a model.

A request for embeddings is a chat whose `embedding` says what the vectors are to be like. An embedding dialect is a
provider side for such chats; it is found by the name that the data files state under `embeddings`, else by that of the
provider's chat dialect where the two go together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apps.gateway.dialects import ProviderDialect, find_provider_dialect
from apps.gateway.dialects.values.embeddings.provider.capabilities import capabilities_of

_PACKAGE: Final = f"{__name__}.provider"
# Providers of these chat dialects are asked for embeddings in the format of the same name, without saying so.
_SAME_NAME: Final = frozenset({"openai", "google", "cohere"})


def find_embedding_dialect(facts: Mapping[str, Any], chat_dialect: str) -> ProviderDialect | None:
    """Return the format in which an offer is asked for embeddings; None where none is stated or known."""
    name = capabilities_of(facts).dialect or (chat_dialect if chat_dialect in _SAME_NAME else None)
    return None if name is None else find_provider_dialect(_PACKAGE, name)
