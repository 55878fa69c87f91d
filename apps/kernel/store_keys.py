"""Names of keys in Redis/Valkey: on a cluster, what one script touches carries one hash tag, and so lies in one slot.

On a single server names are what they always were. Knows the words in front of a name. Must never know what is kept.
"""

from __future__ import annotations

from typing import Final

from django.conf import settings

from apps.kernel.redis_cluster_url import is_cluster_url

_ON_CLUSTER: Final = is_cluster_url(settings.REDIS_URL)


def tagged_key(tag: str, name: str) -> str:
    """Return the key of a name; on a cluster all names of one tag lie in one slot. A tag has no braces."""
    return f"{{{tag}}}:{name}" if _ON_CLUSTER else name


def money_key(name: str) -> str:
    """Return the key of what admission and settlement touch: balances, notes, rates, generations, the outbox.

    A reservation moves several of them in one step, some of which all organizations share (docs/adr/0196).
    """
    return tagged_key("gateway", name)
