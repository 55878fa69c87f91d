"""Rerank dialects: wire formats of rankings, and how a format is found by the facts of a model.

A request to rank documents is a chat whose `reranking` says how many are wanted. A rerank dialect is a provider side
for such chats; it is found by the name that the data files state under `rerank`, else by that of the provider's chat
dialect where the two go together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apps.gateway.dialects import ProviderDialect, find_provider_dialect
from apps.gateway.dialects.values.rerank.provider.capabilities import capabilities_of

_PACKAGE: Final = f"{__name__}.provider"
# Providers of these chat dialects are asked for rankings in the format of the same name, without saying so.
_SAME_NAME: Final = frozenset({"cohere"})


def find_rerank_dialect(facts: Mapping[str, Any], chat_dialect: str) -> ProviderDialect | None:
    """Return the format in which an offer is asked to rank documents; None where none is stated or known."""
    name = capabilities_of(facts).dialect or (chat_dialect if chat_dialect in _SAME_NAME else None)
    return None if name is None else find_provider_dialect(_PACKAGE, name)
