"""Django's registration of the wiring: its checks of the settings."""

from django.apps import AppConfig
from django.core.checks import Tags, register


class WiringConfig(AppConfig):
    """No tables; knows every app by name."""

    name = "gateway_project"
    label = "gateway_project"

    def ready(self) -> None:
        """Have the settings checked wherever Django checks."""
        from gateway_project.checks import check_settings

        register(check_settings, Tags.security)
