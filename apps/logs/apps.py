"""Django's registration of the app."""

from django.apps import AppConfig


class LogsConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.logs"
    label = "logs"
