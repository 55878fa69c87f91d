from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('keys', '0003_mcp_rules'),
    ]

    operations = [
        migrations.AddField(
            model_name='providerkey',
            name='found_models',
            field=models.JSONField(blank=True, db_default=[], default=list, editable=False),
        ),
        migrations.AddField(
            model_name='providerkey',
            name='model_settings',
            field=models.JSONField(blank=True, db_default={}, default=dict, editable=False),
        ),
        migrations.AddField(
            model_name='providerkey',
            name='models_asked_at',
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name='providerkey',
            name='models_problem',
            field=models.CharField(blank=True, db_default='', default='', editable=False, max_length=300),
        ),
        migrations.AddField(
            model_name='providerkey',
            name='server',
            field=models.CharField(db_default='openai', default='openai', editable=False, max_length=16),
        ),
    ]
