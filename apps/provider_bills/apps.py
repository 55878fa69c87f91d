"""Django's registration of the app."""

from django.apps import AppConfig


class ProviderBillsConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.provider_bills"
    label = "provider_bills"
    verbose_name = "Provider bills"
