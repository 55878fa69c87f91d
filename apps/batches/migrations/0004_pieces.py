"""Inputs of batches are read in pieces, and lines that are not paid for end together."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('batches', '0003_native_jobs'),
    ]

    operations = [
        migrations.AddField(
            model_name='storedfile',
            name='lines',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='batch',
            name='bytes_read',
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='batch',
            name='lines_read',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='batch',
            name='lines_prepared',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='batch',
            name='lines_counted',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='batch',
            name='sealed_refusal',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AddField(
            model_name='batchline',
            name='custom_id_digest',
            field=models.UUIDField(null=True),
        ),
        migrations.AlterField(
            model_name='batchline',
            name='outcome',
            field=models.CharField(blank=True, choices=[('', 'Open'), ('succeeded', 'Succeeded'), ('errored', 'Errored'), ('cancelled', 'Cancelled'), ('expired', 'Expired'), ('unpaid', 'Unpaid')], default='', max_length=16),
        ),
    ]
