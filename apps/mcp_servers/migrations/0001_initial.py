import apps.kernel.ids
import django.core.validators
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('organizations', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='McpServer',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=40)),
                ('url', models.URLField(max_length=500)),
                ('encrypted_credentials', models.BinaryField()),
                ('last_four', models.CharField(blank=True, editable=False, max_length=4)),
                ('header_names', models.JSONField(blank=True, default=list, editable=False)),
                ('allowed_tools', models.JSONField(blank=True, null=True)),
                ('project_ids', models.JSONField(blank=True, null=True)),
                ('timeout_seconds', models.PositiveSmallIntegerField(default=60, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(300)])),
                ('status', models.CharField(choices=[('active', 'Active'), ('inactive', 'Inactive'), ('deleted', 'Deleted')], default='active', max_length=16)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='mcp_servers', to='organizations.organization')),
            ],
            options={
                'verbose_name': 'MCP server',
                'indexes': [models.Index(fields=['organization', 'status'], name='mcp_server_organization')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('status', 'deleted'), _negated=True), fields=('organization', 'name'), name='mcp_server_name_unique')],
            },
        ),
    ]
