"""Django's PostgreSQL backend, with a bounded wait for connections (`apps.kernel.postgres.database`)."""
