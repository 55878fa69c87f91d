"""Django's registration of the app."""

from django.apps import AppConfig


class LogSinksConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.log_sinks"
    label = "log_sinks"
    verbose_name = "Log sinks"
