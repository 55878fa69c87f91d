"""The action `reroute` of limits, and the models that answer instead."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("limits", "0003_providers_rolling_purge")]

    operations = [
        migrations.AddField(
            model_name="limit",
            name="reroute_models",
            field=models.JSONField(blank=True, db_default=[], default=list),
        ),
        migrations.AlterField(
            model_name="limit",
            name="action",
            field=models.CharField(
                choices=[("refuse", "Refuse"), ("warn", "Warn"), ("reroute", "Reroute")],
                default="refuse",
                max_length=8,
            ),
        ),
    ]
