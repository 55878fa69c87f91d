"""A scripted administration API, for the tests of this folder."""

from tests.provider_bills.bill_server import server
from tests.support.cast import world

__all__ = ["server", "world"]
