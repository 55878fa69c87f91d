"""Fixtures of the tests that go all the way to an upstream, and the cast."""

from importlib import import_module

from tests.support.cast import world
from tests.support.upstream import backup, caller, sandbox_url

__all__ = ["backup", "caller", "sandbox_url", "world"]
# Loading the routes registers the admin's pages; tests here check every registered page.
import_module("gateway_project.urls")
