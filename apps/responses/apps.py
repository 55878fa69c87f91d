"""Django's registration of the app, which gives `/v1/responses` its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from apps.responses.request_state import StoredStates


class ResponsesConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.responses"
    label = "responses"

    def ready(self) -> None:
        """Install the store of responses in the gateway, which cannot import this app."""
        from apps.gateway.endpoints import response_state

        response_state.install(_load_states)


def _load_states() -> StoredStates:
    from apps.responses.request_state import StoredStates

    return StoredStates()
