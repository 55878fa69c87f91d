"""Django's registration of the wiring: its checks of the settings, names of tables, groups of operators; and of the
admin."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig, apps
from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core.checks import CheckMessage, Tags, register
from django.db.models.signals import post_migrate, post_save, pre_migrate


class WiringConfig(AppConfig):
    """No tables; knows every app by name."""

    name = "gateway_project"
    label = "gateway_project"
    default = True

    def ready(self) -> None:
        """Have the settings checked wherever Django checks."""
        from apps.organizations.models import User
        from gateway_project.admin_site.navigation import name_tables
        from gateway_project.admin_site.operator_groups import note_permissions, seed_groups

        register(_check_settings, "settings")
        # Asked before the product is brought up (`prepare`), and by `check --deploy`: who runs already goes on.
        register(_check_stores, "store", deploy=True)
        name_tables()
        post_save.connect(_password_was_set, sender=User)
        # The signal comes for apps with tables alone, each after the permissions of its tables were made: after the
        # last of them every table has its own.
        last = [one for one in apps.get_app_configs() if one.models_module is not None][-1]
        pre_migrate.connect(note_permissions, sender=last)
        post_migrate.connect(seed_groups, sender=last)


def _password_was_set(**event: Any) -> None:
    """Pass on that a user was saved. The code that ends sessions is loaded then."""
    from apps.organizations.credentials.credential_changes import password_was_set

    password_was_set(**event)


def _check_settings(**options: Any) -> list[CheckMessage]:
    """Return the problems of the settings. The checks are loaded where they are made: they know most of the apps."""
    from gateway_project.diagnosis.registry import check_settings

    return check_settings()


def _check_stores(**options: Any) -> list[CheckMessage]:
    """Return why a deployment must not use its stores."""
    from gateway_project.diagnosis.registry import check_stores

    return check_stores()


class AdminConfig(SimpleAdminConfig):
    """Django's admin. Its pages are loaded where they are served (`admin_site.pages.admin_urls`) or checked, for that
    takes half a second which other processes need not spend at their start."""

    def ready(self) -> None:
        """Have the pages checked."""
        register(_check_pages, Tags.admin)


def _check_pages(**options: Any) -> list[CheckMessage]:
    admin.autodiscover()
    return [*check_dependencies(**options), *check_admin_app(**options)]
