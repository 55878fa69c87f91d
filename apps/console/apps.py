"""Registers the console with Django."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    """Pages for tenants; it has no tables of its own."""

    name = "apps.console"
