"""Own models: the models of an organization's own server, as the server lists them and as the organization set them.

Both are columns of the provider key: `found_models`, a list of `{name, contextLength, capabilities}` that a refresh
replaces, and `model_settings`, `{contextLength, inputPrice, outputPrice}` by the model's name. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

# All models of an organization's own servers, which its policies carry; and models with settings of one server.
MAX_MODELS, MAX_SETTINGS = 2_000, 1_000
# Characters of a model's name at its server: with `custom:<providerName>/` before it, it is a model's name here.
MAX_MODEL_NAME = 200
# Tokens; and USD per million tokens.
MAX_CONTEXT, MAX_PRICE = 100_000_000, Decimal(1_000_000)
# Capabilities that servers state and that are kept.
CAPABILITIES = ("tools", "vision", "thinking", "embedding")
# Ollama's name of a model without a tag.
_DEFAULT_TAG = ":latest"


class OwnModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model of an own server. Prices are USD per million tokens, both or none; None is unknown.

    `context_length` is the organization's setting, else what the server stated, which is `found_context`.
    """

    name: str
    context_length: int | None = None
    found_context: int | None = None
    input_price: Decimal | None = None
    output_price: Decimal | None = None
    # Those of `CAPABILITIES` that the server stated; None if it stated none.
    capabilities: tuple[str, ...] | None = None
    # False for a model with settings that the server does not list.
    is_found: bool = True


class OwnModels(dict[str, OwnModel]):
    """The models of a server by name, those that it lists first."""

    def find(self, name: str) -> OwnModel | None:
        """Return a model by a name that requests may use; None if nothing is known of it."""
        return self.get(name) or self.get(f"{name}{_DEFAULT_TAG}")


def read_models(found: Sequence[Mapping[str, Any]], settings: Mapping[str, Mapping[str, Any]]) -> OwnModels:
    """Return the models of the two columns."""
    stated = {str(one["name"]): one for one in found}
    names = [*stated, *(name for name in settings if name not in stated)]
    return OwnModels({name: _model_of(name, stated.get(name), settings.get(name, {})) for name in names})


def _model_of(name: str, found: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> OwnModel:
    stated = found or {}
    capabilities = stated.get("capabilities")
    return OwnModel(
        name=name,
        context_length=settings.get("contextLength") or stated.get("contextLength"),
        found_context=stated.get("contextLength"),
        input_price=_price(settings.get("inputPrice")),
        output_price=_price(settings.get("outputPrice")),
        capabilities=None if capabilities is None else tuple(capabilities),
        is_found=found is not None,
    )


def _price(stored: str | None) -> Decimal | None:
    return None if stored is None else Decimal(stored)
