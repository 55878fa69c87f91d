"""Django's registration of the app, which gives `/v1/responses` its memory."""

from django.apps import AppConfig


class ResponsesConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.responses"
    label = "responses"

    def ready(self) -> None:
        """Let the endpoint of responses keep state here: the gateway cannot see what is above it."""
        from apps.gateway.endpoints import response_state
        from apps.responses.request_state import StoredStates

        response_state.install(StoredStates())
