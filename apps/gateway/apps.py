"""Django's registration of the app; hands the catalog what dialects declare of their facts."""

from __future__ import annotations

from django.apps import AppConfig

from apps.catalog.facts import Declarations, use_declarations


class GatewayConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.gateway"
    label = "gateway"

    def ready(self) -> None:
        """Let the catalog check data files against the dialects' declarations."""
        use_declarations(_load_declarations)


def _load_declarations() -> Declarations:
    from apps.gateway.dialects.declared_facts import KIND_FACTS, find_facts, find_image_facts

    return Declarations(find_facts, find_image_facts, KIND_FACTS)
