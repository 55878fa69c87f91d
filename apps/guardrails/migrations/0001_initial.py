import apps.guardrails.models
import apps.kernel.ids
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('organizations', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='GuardrailConfig',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('enabled', models.BooleanField(default=True)),
                ('system_rules', models.JSONField(default=apps.guardrails.models.default_system_rules)),
                ('max_file_size_mb', models.DecimalField(decimal_places=2, default=10, max_digits=8)),
                ('allowed_file_types', models.JSONField(default=apps.guardrails.models.default_file_types)),
                ('pii_action', models.CharField(choices=[('block', 'Block'), ('redact', 'Redact'), ('warn', 'Warn'), ('allow', 'Allow')], default='redact', max_length=8, null=True)),
                ('scan_output', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('organization', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='guardrail_config', to='organizations.organization')),
            ],
            options={
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='Violation',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('organization_id', models.UUIDField()),
                ('log_id', models.UUIDField()),
                ('api_key_id', models.UUIDField(null=True)),
                ('rule_id', models.CharField(max_length=60)),
                ('rule_name', models.CharField(max_length=255)),
                ('category', models.CharField(max_length=40)),
                ('action_taken', models.CharField(choices=[('blocked', 'Blocked'), ('redacted', 'Redacted'), ('warned', 'Warned')], max_length=12)),
                ('matched_pattern', models.TextField(blank=True)),
                ('matched_content', models.TextField(blank=True)),
                ('content_hash', models.CharField(max_length=64)),
                ('model', models.CharField(max_length=255)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'indexes': [models.Index(fields=['organization_id', '-created_at', 'id'], name='guardrails__organiz_0dc89e_idx')],
            },
        ),
        migrations.CreateModel(
            name='CustomRule',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=255)),
                ('type', models.CharField(choices=[('blocked_terms', 'Blocked Terms'), ('custom_regex', 'Custom Regex'), ('topic_restriction', 'Topic Restriction')], max_length=20)),
                ('config', models.JSONField()),
                ('priority', models.IntegerField(default=100)),
                ('enabled', models.BooleanField(default=True)),
                ('observe_only', models.BooleanField(default=False)),
                ('action', models.CharField(choices=[('block', 'Block'), ('redact', 'Redact'), ('warn', 'Warn'), ('allow', 'Allow')], default='block', max_length=8)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='custom_rules', to='organizations.organization')),
            ],
            options={
                'indexes': [models.Index(fields=['organization', '-priority'], name='guardrails__organiz_b0184f_idx')],
            },
        ),
    ]
