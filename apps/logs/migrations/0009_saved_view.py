"""Saved views: filters of the log under a name."""

import apps.kernel.ids
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('logs', '0008_sessions'),
        ('organizations', '0004_audit_not_emptied'),
    ]

    operations = [
        migrations.CreateModel(
            name='SavedView',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=80)),
                ('query', models.CharField(max_length=2000)),
                ('is_shared', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='organizations.organization')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('organization', 'created_by', 'name'), name='saved_view_once')],
            },
        ),
    ]
