"""The cast and a server of tools, for the tests of this folder."""

from tests.support.cast import world
from tests.support.mcp_stand_in import _mcp_server, mcp_server

__all__ = ["_mcp_server", "mcp_server", "world"]
