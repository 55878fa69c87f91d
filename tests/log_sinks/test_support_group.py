"""The migration that lets a `support` group which is there already look at log sinks."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps
from django.contrib.auth.models import Group

pytestmark = pytest.mark.django_db

let_support_look = import_module("apps.log_sinks.migrations.0002_support_sees_log_sinks").let_support_look


def test_a_group_that_is_there_gets_the_one_right_and_keeps_its_others() -> None:
    Group.objects.filter(name="support").delete()
    group = Group.objects.create(name="support")
    let_support_look(apps, None)
    assert list(group.permissions.values_list("codename", flat=True)) == ["view_logsink"]


def test_without_the_group_none_is_made() -> None:
    Group.objects.filter(name="support").delete()
    let_support_look(apps, None)
    assert not Group.objects.filter(name="support").exists()
