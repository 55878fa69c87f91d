"""The tables of alerts."""

import apps.kernel.ids
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    """See the module's docstring."""

    initial = True

    dependencies = [
        ('organizations', '0013_management_keys'),
    ]

    operations = [
        migrations.CreateModel(
            name='AlertReader',
            fields=[
                ('membership', models.OneToOneField(editable=False, on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='alert_reader', serialize=False, to='organizations.membership')),
                ('by_email', models.BooleanField(default=True)),
                ('read_until', models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='AlertWatch',
            fields=[
                ('organization', models.OneToOneField(editable=False, on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='alert_watch', serialize=False, to='organizations.organization')),
                ('next_evaluation_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), db_index=True)),
            ],
            options={
                'verbose_name': 'alert schedule',
            },
        ),
        migrations.CreateModel(
            name='Alert',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('balance_low', 'Balance below an amount'), ('balance_runway', 'Balance lasts for few days'), ('limit_share', 'Share of a limit is used'), ('daily_spend', 'Spending of a day is unusual'), ('error_rate', 'Error rate of a model or provider'), ('latency', 'Latency of a model or provider'), ('key_unused', 'API key is not used'), ('model_retirement', 'Model in use retires'), ('price_change', 'Price of a model in use changes'), ('integration_off', 'Integration is switched off'), ('payment_failed', 'Payment failed')], max_length=24)),
                ('subject', models.CharField(blank=True, max_length=300)),
                ('title', models.CharField(max_length=300)),
                ('text', models.TextField()),
                ('page', models.CharField(blank=True, max_length=100)),
                ('figures', models.JSONField(blank=True, default=dict)),
                ('owners_told', models.BooleanField(default=False)),
                ('fired_at', models.DateTimeField()),
                ('resolved_at', models.DateTimeField(null=True)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='alerts', to='organizations.organization')),
            ],
        ),
        migrations.CreateModel(
            name='AlertDestination',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100)),
                ('kind', models.CharField(choices=[('webhook', 'Webhook'), ('slack', 'Slack'), ('teams', 'Microsoft Teams'), ('pagerduty', 'PagerDuty')], max_length=16)),
                ('url', models.CharField(max_length=500)),
                ('encrypted_credentials', models.BinaryField()),
                ('masked_credentials', models.CharField(blank=True, editable=False, max_length=140)),
                ('status', models.CharField(choices=[('active', 'Active'), ('inactive', 'Inactive'), ('failed', 'Failed'), ('deleted', 'Deleted')], default='active', max_length=16)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('leased_until', models.DateTimeField(editable=False, null=True)),
                ('next_attempt_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('failures', models.PositiveIntegerField(default=0, editable=False)),
                ('failing_since', models.DateTimeField(editable=False, null=True)),
                ('last_error', models.CharField(blank=True, editable=False, max_length=500)),
                ('last_error_at', models.DateTimeField(editable=False, null=True)),
                ('last_delivered_at', models.DateTimeField(editable=False, null=True)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='alert_destinations', to='organizations.organization')),
            ],
            options={
                'verbose_name': 'alert destination',
            },
        ),
        migrations.CreateModel(
            name='AlertDelivery',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('phase', models.CharField(choices=[('fired', 'Fired'), ('resolved', 'Resolved')], max_length=8)),
                ('status', models.CharField(choices=[('waiting', 'Waiting'), ('sent', 'Sent'), ('dropped', 'Dropped')], default='waiting', max_length=8)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('next_attempt_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('sent_at', models.DateTimeField(null=True)),
                ('alert', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='alerts.alert')),
                ('destination', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='alerts.alertdestination')),
            ],
            options={
                'verbose_name_plural': 'alert deliveries',
            },
        ),
        migrations.CreateModel(
            name='AlertRule',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('balance_low', 'Balance below an amount'), ('balance_runway', 'Balance lasts for few days'), ('limit_share', 'Share of a limit is used'), ('daily_spend', 'Spending of a day is unusual'), ('error_rate', 'Error rate of a model or provider'), ('latency', 'Latency of a model or provider'), ('key_unused', 'API key is not used'), ('model_retirement', 'Model in use retires'), ('price_change', 'Price of a model in use changes'), ('integration_off', 'Integration is switched off'), ('payment_failed', 'Payment failed')], max_length=24)),
                ('parameters', models.JSONField(blank=True, default=dict)),
                ('status', models.CharField(choices=[('active', 'Active'), ('inactive', 'Inactive'), ('deleted', 'Deleted')], default='active', max_length=16)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='alert_rules', to='organizations.organization')),
            ],
            options={
                'verbose_name': 'alert rule',
            },
        ),
        migrations.AddField(
            model_name='alert',
            name='rule',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='alerts', to='alerts.alertrule'),
        ),
        migrations.AddConstraint(
            model_name='alertdestination',
            constraint=models.UniqueConstraint(condition=models.Q(('status', 'deleted'), _negated=True), fields=('organization', 'name'), name='alert_destination_name_unique'),
        ),
        migrations.AddIndex(
            model_name='alertdelivery',
            index=models.Index(condition=models.Q(('status', 'waiting')), fields=['destination', 'id'], name='alert_delivery_waiting'),
        ),
        migrations.AddConstraint(
            model_name='alertdelivery',
            constraint=models.UniqueConstraint(fields=('alert', 'phase', 'destination'), name='alert_delivery_once', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='alertrule',
            constraint=models.UniqueConstraint(condition=models.Q(('status', 'deleted'), _negated=True), fields=('organization', 'kind', 'parameters'), name='alert_rule_once'),
        ),
        migrations.AddIndex(
            model_name='alert',
            index=models.Index(fields=['organization', '-id'], name='alert_newest'),
        ),
        migrations.AddIndex(
            model_name='alert',
            index=models.Index(condition=models.Q(('resolved_at__isnull', True)), fields=['organization'], name='alert_open'),
        ),
        migrations.AddIndex(
            model_name='alert',
            index=models.Index(fields=['fired_at'], name='alert_age'),
        ),
        migrations.AddConstraint(
            model_name='alert',
            constraint=models.UniqueConstraint(condition=models.Q(('resolved_at__isnull', True)), fields=('rule', 'subject'), name='alert_once_per_cause'),
        ),
    ]
