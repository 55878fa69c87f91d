"""Limits of providers, rolling windows, windows from a date, and the part of a counter whose charges are purged."""

import apps.kernel.money
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("limits", "0002_teams")]

    operations = [
        migrations.AddField(
            model_name="limit",
            name="provider",
            field=models.CharField(blank=True, db_default="", default="", max_length=255),
        ),
        migrations.AddField(
            model_name="limit",
            name="rolling",
            field=models.PositiveSmallIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="limit",
            name="starts_on",
            field=models.DateField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="limitcounter",
            name="folded",
            field=apps.kernel.money.MoneyField(db_default=0, default=0, decimal_places=12, max_digits=24),
        ),
        migrations.AlterField(
            model_name="limit",
            name="scope",
            field=models.CharField(
                choices=[
                    ("organization", "Organization"),
                    ("team", "Team"),
                    ("project", "Project"),
                    ("member", "Member"),
                    ("key", "Key"),
                    ("end_user", "End User"),
                    ("model", "Model"),
                    ("provider", "Provider"),
                ],
                max_length=16,
            ),
        ),
    ]
