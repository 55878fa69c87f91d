"""Django's registration of the app."""

from django.apps import AppConfig


class AlertsConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.alerts"
    label = "alerts"
    verbose_name = "Alerts"
