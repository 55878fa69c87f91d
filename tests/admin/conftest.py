"""The cast, for the tests of this folder."""

from importlib import import_module

from tests.support.cast import world

__all__ = ["world"]
# Loading the routes registers the admin's pages; tests here check every registered page.
import_module("gateway_project.urls")
