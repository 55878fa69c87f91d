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
        from gateway_project.redis_checks import check_store

        register(check_settings, Tags.security)
        # Asked before the product is brought up (`prepare`), and by `check --deploy`: who runs already goes on.
        register(check_store, "store", deploy=True)
