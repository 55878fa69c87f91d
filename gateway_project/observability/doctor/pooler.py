"""Checks of a pooler before PostgreSQL: it may reject the connections of web workers and accept all others.

The doctor checks the settings with which web workers connect; it does not connect through the pooler itself.
"""

from __future__ import annotations

from django.db import DatabaseError, InterfaceError, connections

from apps.kernel.postgres.database import statement_limit_option

NO_LIMIT = "PgBouncer refuses web workers: they ask for a limit of statements as they connect"
LIMIT_MEND = (
    "set ignore_startup_parameters = options in PgBouncer, or DATABASE_STATEMENT_TIMEOUT=0 here;"
    " and ALTER ROLE ... SET statement_timeout = '30s'"
)


def refuses_statement_limit(alias: str) -> bool:
    """Tell whether a server that answers refuses a connection with a web worker's limit of statements."""
    limit = statement_limit_option()
    if not limit:
        return False
    asking = connections[alias].copy()
    asking.settings_dict["OPTIONS"].pop("pool", None)
    asking.settings_dict["OPTIONS"]["options"] = limit
    try:
        asking.ensure_connection()
    except (DatabaseError, InterfaceError) as error:
        return "startup parameter" in str(error)
    else:
        return False
    finally:
        asking.close()
