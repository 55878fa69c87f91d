"""Django's registration of the app."""

from django.apps import AppConfig


class OrganizationsConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.organizations"
    label = "organizations"
