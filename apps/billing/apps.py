"""Django's registration of the app."""

from django.apps import AppConfig


class BillingConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.billing"
    label = "billing"
