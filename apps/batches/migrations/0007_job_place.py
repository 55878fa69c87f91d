"""A native job keeps a copy of its bucket, role and addresses: the catalog may change while the job runs."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('batches', '0006_uploads'),
    ]

    operations = [
        migrations.AddField(
            model_name='nativejob',
            name='api_url',
            field=models.CharField(blank=True, db_default='', default='', max_length=300),
        ),
        migrations.AddField(
            model_name='nativejob',
            name='role',
            field=models.CharField(blank=True, db_default='', default='', max_length=2048),
        ),
        migrations.AddField(
            model_name='nativejob',
            name='storage',
            field=models.CharField(blank=True, db_default='', default='', max_length=500),
        ),
        migrations.AddField(
            model_name='nativejob',
            name='storage_url',
            field=models.CharField(blank=True, db_default='', default='', max_length=300),
        ),
    ]
