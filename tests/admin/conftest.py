"""The cast, for the tests of this folder."""

from importlib import import_module

from tests.support.cast import world

__all__ = ["world"]
# The admin's pages are registered with the routes: tests ask for all that there are.
import_module("gateway_project.urls")
