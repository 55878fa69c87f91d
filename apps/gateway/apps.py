"""Django's registration of the app."""

from django.apps import AppConfig


class GatewayConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.gateway"
    label = "gateway"
