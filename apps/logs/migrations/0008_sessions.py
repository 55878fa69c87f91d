"""Session and client of a request, and the indexes of sessions, made on one partition after the other.

An index of a partitioned table cannot be made concurrently as a whole. Partitions that are created meanwhile have both
indexes from the table. A migration that was interrupted goes on where it stopped.
"""

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

ADD_COLUMNS = """
ALTER TABLE request_log
    ADD COLUMN IF NOT EXISTS session_id varchar(255) NULL, ADD COLUMN IF NOT EXISTS user_agent varchar(64) NULL
"""
DROP_COLUMNS = "ALTER TABLE request_log DROP COLUMN session_id, DROP COLUMN user_agent"
INDEXES = {
    "log_session": "(organization_id, session_id, created_at, id) WHERE session_id IS NOT NULL",
    "log_with_session": "(organization_id, created_at, id) WHERE session_id IS NOT NULL",
}
# Partitions without an attached index of this name.
LACKING = """
    SELECT child.relname FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid
    WHERE inhparent = 'request_log'::regclass AND NOT EXISTS (
        SELECT FROM pg_inherits part JOIN pg_index ON pg_index.indexrelid = part.inhrelid
        WHERE part.inhparent = %s::regclass AND pg_index.indrelid = child.oid
    ) ORDER BY child.relname
"""


def create_indexes(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    with schema_editor.connection.cursor() as cursor:
        for name, definition in INDEXES.items():
            cursor.execute(f"CREATE INDEX IF NOT EXISTS {name} ON ONLY request_log {definition}")
            cursor.execute(LACKING, [name])
            for (partition,) in cursor.fetchall():
                own = f"{partition}_{name}"
                # One that an interrupted run left may be invalid.
                cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {own}")
                cursor.execute(f"CREATE INDEX CONCURRENTLY {own} ON {partition} {definition}")
                cursor.execute(f"ALTER INDEX {name} ATTACH PARTITION {own}")


def drop_indexes(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    for name in INDEXES:
        schema_editor.execute(f"DROP INDEX IF EXISTS {name}")


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('logs', '0007_answer_fields'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(ADD_COLUMNS, DROP_COLUMNS),
                migrations.RunPython(create_indexes, drop_indexes),
            ],
            state_operations=[
                migrations.AddField(
                    model_name='requestlog',
                    name='session_id',
                    field=models.CharField(help_text="the client's session: an agent's run, a conversation, a response chain", max_length=255, null=True),
                ),
                migrations.AddField(
                    model_name='requestlog',
                    name='user_agent',
                    field=models.CharField(help_text="the client's program: the first product of its `User-Agent`", max_length=64, null=True),
                ),
                migrations.AddIndex('requestlog', models.Index(
                    condition=models.Q(('session_id__isnull', False)), fields=['organization_id', 'session_id', 'created_at', 'id'], name='log_session')),
                migrations.AddIndex('requestlog', models.Index(
                    condition=models.Q(('session_id__isnull', False)), fields=['organization_id', 'created_at', 'id'], name='log_with_session')),
            ],
        ),
    ]
