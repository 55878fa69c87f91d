"""Django's registration of the app."""

from django.apps import AppConfig


class LimitsConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.limits"
    label = "limits"
    verbose_name = "Limits"
