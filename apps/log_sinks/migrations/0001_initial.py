import apps.kernel.ids
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('organizations', '0010_email_change'),
    ]

    operations = [
        migrations.CreateModel(
            name='WaitingRow',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('sink_id', models.UUIDField()),
                ('log_id', models.UUIDField()),
                ('batch', models.BigIntegerField(null=True)),
                ('queued_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name': 'row that waits for a log sink',
                'verbose_name_plural': 'rows that wait for log sinks',
                'indexes': [models.Index(fields=['sink_id', 'id'], name='waiting_row_sink'), models.Index(condition=models.Q(('batch__isnull', False)), fields=['sink_id', 'batch'], name='waiting_row_batch'), models.Index(fields=['queued_at'], name='waiting_row_queued')],
            },
        ),
        migrations.CreateModel(
            name='LogSink',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100)),
                ('kind', models.CharField(choices=[('webhook', 'Webhook'), ('s3', 'S3-compatible bucket'), ('otlp', 'OpenTelemetry (Langfuse)')], max_length=16)),
                ('url', models.URLField(max_length=500)),
                ('options', models.JSONField(blank=True, default=dict)),
                ('include_content', models.BooleanField(default=False)),
                ('encrypted_credentials', models.BinaryField()),
                ('masked_credentials', models.CharField(blank=True, editable=False, max_length=140)),
                ('status', models.CharField(choices=[('active', 'Active'), ('inactive', 'Inactive'), ('failed', 'Failed'), ('deleted', 'Deleted')], default='active', max_length=16)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('last_batch', models.BigIntegerField(default=0, editable=False)),
                ('leased_until', models.DateTimeField(editable=False, null=True)),
                ('next_attempt_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('failures', models.PositiveIntegerField(default=0, editable=False)),
                ('failing_since', models.DateTimeField(editable=False, null=True)),
                ('last_error', models.CharField(blank=True, editable=False, max_length=500)),
                ('last_error_at', models.DateTimeField(editable=False, null=True)),
                ('last_delivered_at', models.DateTimeField(editable=False, null=True)),
                ('delivered_rows', models.BigIntegerField(default=0, editable=False)),
                ('dropped_rows', models.BigIntegerField(default=0, editable=False)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='log_sinks', to='organizations.organization')),
            ],
            options={
                'verbose_name': 'log sink',
                'indexes': [models.Index(condition=models.Q(('status', 'active')), fields=['organization'], name='log_sink_active')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('status', 'deleted'), _negated=True), fields=('organization', 'name'), name='log_sink_name_unique')],
            },
        ),
    ]
