"""The test database as the run's set-up left it, restored after every test that commits.

Django empties every table of every app instead, and makes the permissions again; then the catalog has to be loaded
again. Each of these takes longer than most tests. Here only what a test wrote is deleted, and only the tables of set-up
that it changed are written again.
"""

from __future__ import annotations

from typing import Final

from django.db import connection, transaction

# A schema beside the tables: a copy of each table that set-up filled, and the version of what the table has.
_DEFINITIONS: Final = """
DROP SCHEMA IF EXISTS as_set_up CASCADE;
CREATE SCHEMA as_set_up;
CREATE TABLE as_set_up.versions (name text PRIMARY KEY, version numeric NOT NULL);

-- A row's place and the transaction that wrote it: no two versions of rows share both.
CREATE FUNCTION as_set_up.read_version(name text) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE found numeric;
BEGIN
    EXECUTE format(
        'SELECT count(*) + coalesce(sum(hashtextextended(ctid::text || ''.'' || xmin::text, 0)), 0) FROM %I', name
    ) INTO found;
    RETURN found;
END $$;

CREATE FUNCTION as_set_up.has_rows(name text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE found boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM %I)', name) INTO found;
    RETURN found;
END $$;

CREATE VIEW as_set_up.tables AS
    SELECT relname::text AS name FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'django_migrations';

CREATE FUNCTION as_set_up.remember() RETURNS void LANGUAGE plpgsql AS $$
DECLARE one record;
BEGIN
    FOR one IN SELECT name FROM as_set_up.tables WHERE as_set_up.has_rows(name) LOOP
        EXECUTE format('CREATE TABLE as_set_up.%I AS TABLE public.%I', one.name, one.name);
        INSERT INTO as_set_up.versions VALUES (one.name, as_set_up.read_version(one.name));
    END LOOP;
END $$;

CREATE FUNCTION as_set_up.restore() RETURNS void LANGUAGE plpgsql AS $$
DECLARE one record;
BEGIN
    -- No trigger fires: those of foreign keys want an order, and those of the ledger refuse.
    SET LOCAL session_replication_role = replica;
    FOR one IN SELECT name, version FROM as_set_up.tables LEFT JOIN as_set_up.versions USING (name) LOOP
        IF one.version IS NULL THEN
            IF as_set_up.has_rows(one.name) THEN
                EXECUTE format('DELETE FROM %I', one.name);
            END IF;
        ELSIF as_set_up.read_version(one.name) <> one.version THEN
            EXECUTE format('DELETE FROM %I', one.name);
            EXECUTE format('INSERT INTO %I SELECT * FROM as_set_up.%I', one.name, one.name);
            UPDATE as_set_up.versions SET version = as_set_up.read_version(one.name) WHERE name = one.name;
        END IF;
    END LOOP;
END $$;
"""


def remember() -> None:
    """Remember the rows of all tables; once in a database."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_DEFINITIONS)
        cursor.execute("SELECT as_set_up.remember()")


def restore() -> None:
    """Give all tables the rows that were remembered, and no others."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT as_set_up.restore()")
