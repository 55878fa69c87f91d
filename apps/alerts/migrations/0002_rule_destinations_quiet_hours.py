"""Destinations of single rules, and quiet hours of members."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("alerts", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="alertrule",
            name="destination_ids",
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="alertreader",
            name="quiet_from",
            field=models.TimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="alertreader",
            name="quiet_until",
            field=models.TimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="alertreader",
            name="time_zone",
            field=models.CharField(db_default="UTC", default="UTC", max_length=64),
        ),
        migrations.AddField(
            model_name="alertreader",
            name="held_since",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="alertreader",
            name="next_digest_at",
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
        ),
        migrations.AddIndex(
            model_name="alertreader",
            index=models.Index(
                condition=models.Q(("held_since__isnull", False)), fields=["held_since"], name="alert_reader_held"
            ),
        ),
    ]
