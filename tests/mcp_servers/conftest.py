"""The cast, a server of tools, and a caller with an API key, for the tests of this folder."""

from tests.support.cast import world
from tests.support.mcp_stand_in import _mcp_server, mcp_server
from tests.support.upstream import caller, sandbox_url

__all__ = ["_mcp_server", "caller", "mcp_server", "sandbox_url", "world"]
