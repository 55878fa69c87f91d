from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('keys', '0007_replicas_and_probes'),
    ]

    operations = [
        migrations.AddField(
            model_name='providerkey',
            name='observed_use',
            field=models.JSONField(blank=True, db_default={}, default=dict, editable=False),
        ),
    ]
