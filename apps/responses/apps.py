"""Django's registration of the app, which gives `/v1/responses` its memory."""

from django.apps import AppConfig


class ResponsesConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.responses"
    label = "responses"

    def ready(self) -> None:
        """Install the store of responses in the gateway, which cannot import this app."""
        from apps.gateway.endpoints import response_state
        from apps.responses.request_state import StoredStates

        response_state.install(StoredStates())
