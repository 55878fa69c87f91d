"""Dialect facts of an offer: those of the data files, and those that follow from the catalog's features."""

from __future__ import annotations

from typing import Any

from apps.catalog.offers import Offer
from apps.kernel.concurrency.identity_cache import IdentityCache


def facts_of(offer: Offer) -> dict[str, Any]:
    """Return the facts, not to be changed; what a data file states goes before what follows from the features.

    `structured_outputs`: how an answer gets the form of a schema (`native`, by a forced `tool`, by `json_object` and
    words), left out where there is no way.
    """
    return _facts(offer)


def _compute_facts(offer: Offer) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "prompt_cache": offer.prompt_cache,
        "temperature": offer.temperature,
        "web_search": offer.web_search,
    }
    if offer.structured_outputs:
        facts["structured_outputs"] = "native"
    elif offer.tools:
        facts["structured_outputs"] = "tool"
    elif offer.json_output:
        facts["structured_outputs"] = "json_object"
    return facts | dict(offer.facts)


def supports_structured_output(offer: Offer) -> bool:
    """Return whether an answer can be given the form of a schema, natively or in a way that the client cannot tell."""
    return "structured_outputs" in facts_of(offer)


_facts = IdentityCache(_compute_facts)
