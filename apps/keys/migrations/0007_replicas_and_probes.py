from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('keys', '0006_last_four_of_keys'),
    ]

    operations = [
        migrations.AddField(
            model_name='providerkey',
            name='model_probes',
            field=models.JSONField(blank=True, db_default={}, default=dict, editable=False),
        ),
        migrations.AddField(
            model_name='providerkey',
            name='replicas',
            field=models.JSONField(blank=True, db_default=[], default=list, editable=False),
        ),
    ]
