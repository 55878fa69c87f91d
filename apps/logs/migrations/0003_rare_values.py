from django.db import migrations, models

# Which models a provider has is no accident: who asks for both must not be thought to find what each has on its own.
# Partitions made from now on have it from the table.
STATISTICS = "CREATE STATISTICS log_answered (mcv) ON used_model, used_provider FROM request_log"
OF_PARTITIONS = """
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'request_log'::regclass LOOP
        EXECUTE format('CREATE STATISTICS (mcv) ON used_model, used_provider FROM %s', name);
        EXECUTE format('ANALYZE %s (used_model, used_provider)', name);
    END LOOP;
END $$
"""


class Migration(migrations.Migration):

    dependencies = [('logs', '0002_activity_and_retention')]

    operations = [
        migrations.AddIndex(
            model_name='requestlog',
            index=models.Index(
                condition=models.Q(('finish_reason__isnull', False)),
                fields=['project_id', 'finish_reason', 'created_at', 'id'],
                name='log_finish',
            ),
        ),
        migrations.AddIndex(
            model_name='requestlog',
            index=models.Index(
                condition=models.Q(('custom_headers__isnull', False)), fields=['project_id', 'created_at', 'id'], name='log_with_headers'
            ),
        ),
        migrations.RunSQL(STATISTICS, 'DROP STATISTICS log_answered'),
        migrations.RunSQL(OF_PARTITIONS, migrations.RunSQL.noop),
    ]
