"""Performance of providers: outcomes of calls by model, in slots of an hour and a day."""

import django.contrib.postgres.fields
from django.db import migrations, models

COUNTS = [
    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
    ('starts_at', models.DateTimeField()),
    ('model', models.CharField(max_length=255)),
    ('provider', models.CharField(max_length=80)),
    ('succeeded', models.BigIntegerField(default=0)),
    ('failed', models.BigIntegerField(default=0)),
    ('first_token_steps', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=None)),
    ('speed_steps', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=None)),
]


class Migration(migrations.Migration):

    dependencies = [
        ('logs', '0009_saved_view'),
    ]

    operations = [
        migrations.CreateModel(
            name='PerformanceDelta',
            fields=COUNTS,
            options={
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='PerformanceSlot',
            fields=[*COUNTS, ('minutes', models.PositiveSmallIntegerField())],
            options={
                'verbose_name_plural': 'performance',
                'constraints': [models.UniqueConstraint(fields=('minutes', 'model', 'starts_at', 'provider'), name='performance_slot_once')],
            },
        ),
    ]
